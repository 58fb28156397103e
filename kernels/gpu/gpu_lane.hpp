// What a lane holds of a tensor, and how plain values get into a lane and back to memory.
//
// A group of 32 values lies in two neighbouring lanes. The lane in column c has values 8 c ... 8 c
// + 7 and those 16 behind them. A lane therefore makes whole bytes of the 4-bit plane without its
// neighbour, one block of the noise generator serves eight values, and eight 16-bit values are one
// access of 16 bytes. A warp holds a row of groups at a time.
#pragma once

#include "base/types.hpp"
#include "kernels/codec/number.hpp"
#include "kernels/gpu/gpu_memory.hpp"

namespace qccl::QCCL_GPU {

inline constexpr unsigned columns = 2, row_groups = lanes / columns, row_values = 32 * row_groups;

QCCL_DEVICE unsigned column() { return lane() % columns; }
// Returns the lane's group of a row.
QCCL_DEVICE uint64_t group_of(uint64_t row) { return row * row_groups + lane() / columns; }

// Eight consecutive values. A lane has two octets of a group; the second lies 16 values behind the
// first.
template <class T> using Octet = T[8];

// Position of a lane's octet in the tensor.
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

// Returns the value at an index that is not known at compile time. Registers have no addresses, so
// the value is selected among all eight. Use pick and set in rare code that need not be fast but
// must not take registers from fast code.
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

// Returns how many of the eight values from `place` on exist.
QCCL_DEVICE unsigned present(uint64_t place, uint64_t count) {
    return place >= count ? 0 : count - place < 8 ? static_cast<unsigned>(count - place) : 8;
}

// ---- Bits: what memory holds

// Loads eight values from `place` on. `count` values exist; beyond them the last one is repeated.
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

// Calls f(Bits{}) with the type that holds a value of a plain type. T is the accumulator's type.
// Integers have that type; floats have that type or 8 or 16 bits.
template <class T, class Call> QCCL_DEVICE void with_bits(DataType type, Call &&call) {
    if constexpr (std::is_floating_point_v<T>) {
        if (type == DataType::float16 || type == DataType::bfloat16) return call(uint16_t{});
        if (type == DataType::float8e4m3 || type == DataType::float8e5m2) return call(uint8_t{});
    }
    call(T{});
}

// Calls f(F{}) with the format of a type of 8 or 16 bits.
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
