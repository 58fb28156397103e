// What a lane holds of a tensor, and plain values on their way to it and back.
//
// A group of 32 values lies in two neighbouring lanes: the lane in column c has values 8 c ... 8 c
// + 7 and those 16 behind them. So it makes whole bytes of the plane of 4 bits alone, a block of
// the noise's generator serves it, and eight values of 16 bits are one access of 16 bytes. A warp
// holds a row of groups at a time.
#pragma once

#include "base/types.hpp"
#include "kernels/gpu_memory.hpp"
#include "kernels/number.hpp"

namespace qccl::QCCL_GPU {

inline constexpr unsigned columns = 2, row_groups = lanes / columns, row_values = 32 * row_groups;

QCCL_DEVICE unsigned column() { return lane() % columns; }
// The lane's group of a row.
QCCL_DEVICE uint64_t group_of(uint64_t row) { return row * row_groups + lane() / columns; }

// Eight neighbouring values; a lane has two octets of a group, the second 16 values behind the
// first.
template <class T> using Octet = T[8];

// Where an octet of the lane is in the tensor.
struct Spot {
    uint64_t group;
    unsigned half; // of the group: 0 or 1

    QCCL_DEVICE uint64_t place() const { return group * 32 + half * 16 + column() * 8; }
};

// Calls f(i) for each value of an octet.
template <class Call> QCCL_DEVICE void for_each_value(Call &&call) {
#pragma unroll
    for (unsigned i = 0; i < 8; i++) call(i);
}

// A value by a number that is not known when the kernel is compiled. Registers have no addresses:
// it is chosen among all. For what is rare and need not be fast, but must not take registers from
// what has to be.
template <class T> QCCL_DEVICE T pick(const Octet<T> &values, unsigned i) {
    T picked = values[0];
#pragma unroll
    for (unsigned k = 1; k < 8; k++) picked = k == i ? values[k] : picked;
    return picked;
}
template <class T> QCCL_DEVICE void set(Octet<T> &values, unsigned i, T value) {
#pragma unroll
    for (unsigned k = 0; k < 8; k++) values[k] = k == i ? value : values[k];
}

// How many of the eight from `place` on there are.
QCCL_DEVICE unsigned present(uint64_t place, uint64_t count) {
    return place >= count ? 0 : count - place < 8 ? static_cast<unsigned>(count - place) : 8;
}

// ---- Bits: what memory holds

// Eight from `place` on, of the `count` that there are; beyond them the last one again.
template <class Bits>
QCCL_DEVICE void load_eight(const std::byte *start, uint64_t place, uint64_t count,
                            Octet<Bits> &bits) {
    const std::byte *const at = start + place * sizeof(Bits);
    if (is_aligned<Bits, 8>(at) && present(place, count) == 8) return load(at, bits);
#pragma unroll 1
    for (unsigned i = 0; i < 8; i++) {
        const uint64_t known = place + i < count ? place + i : count - 1;
        set(bits, i, load_one<Bits>(start + known * sizeof(Bits)));
    }
}

template <class Bits>
QCCL_DEVICE void store_eight(std::byte *start, uint64_t place, uint64_t count,
                             const Octet<Bits> &bits) {
    std::byte *const at = start + place * sizeof(Bits);
    const unsigned there = present(place, count);
    if (is_aligned<Bits, 8>(at) && there == 8) return store(at, bits);
#pragma unroll 1
    for (unsigned i = 0; i < there; i++) store_one(at + i * sizeof(Bits), pick(bits, i));
}

// ---- Formats: what bits mean

// Calls f(Bits{}) with what holds a value of a plain type. T is the accumulator's type; integers
// are of it, floats of it or of 8 or 16 bits.
template <class T, class Call> QCCL_DEVICE void with_bits(DataType type, Call &&call) {
    if constexpr (std::is_floating_point_v<T>) {
        if (type == DataType::float16 || type == DataType::bfloat16) return call(uint16_t{});
        if (type == DataType::float8e4m3 || type == DataType::float8e5m2) return call(uint8_t{});
    }
    call(T{});
}

// Calls f(F{}) with the format.
template <class Bits, class Call> QCCL_DEVICE void with_format(DataType type, Call &&call) {
    if constexpr (std::is_same_v<Bits, uint16_t>)
        return type == DataType::float16 ? call(Half{}) : call(Bfloat{});
    else
        return type == DataType::float8e4m3 ? call(E4m3{}) : call(E5m2{});
}

template <class T, class Bits, unsigned count>
QCCL_DEVICE void widen_values(DataType type, const Bits (&bits)[count], T (&values)[count]) {
    const auto each = [&](auto &&widened) {
#pragma unroll
        for (unsigned i = 0; i < count; i++) values[i] = widened(bits[i]);
    };
    if constexpr (std::is_same_v<Bits, T>)
        each([](Bits x) { return x; });
    else
        with_format<Bits>(
            type, [&]<class F>(F) { each([](Bits x) { return static_cast<T>(widen<F>(x)); }); });
}

template <class T, class Bits>
QCCL_DEVICE void narrow_values(DataType type, bool saturates, const Octet<T> &values,
                               Octet<Bits> &bits) {
    if constexpr (std::is_integral_v<T>)
        for_each_value([&](unsigned i) { bits[i] = values[i]; });
    else if constexpr (std::is_same_v<Bits, T>)
        for_each_value([&](unsigned i) { bits[i] = canonical(values[i]); });
    else
        with_format<Bits>(type, [&]<class F>(F) {
            for_each_value([&](unsigned i) {
                bits[i] = static_cast<Bits>(saturates ? narrow<F, Overflow::saturate>(values[i])
                                                      : narrow<F>(values[i]));
            });
        });
}

} // namespace qccl::QCCL_GPU
