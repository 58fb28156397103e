// Fills and checks the buffers that sequence_vector.hpp describes.
#include "sequence_vector.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace sequences {

namespace {

constexpr size_t guard_bytes = 64;
constexpr std::byte guard{0xA5};

// Returns what a rank adds to each value. These offsets sum to 0 over all ranks, so that averages
// are whole. Integers are positive, because unsigned ones could not be averaged otherwise.
int64_t offset_of(int rank, int ranks) {
    if (rank == ranks - 1 && ranks % 2 == 1) return 0;
    return rank % 2 == 0 ? 1 : -1;
}
int64_t base_at(size_t index, const TypeRow &type) {
    const auto base = static_cast<int64_t>(index * 7 % 3);
    return type.is_float() ? base - 1 : base + 1;
}
int64_t value_of(int rank, int ranks, size_t index, const TypeRow &type) {
    return base_at(index, type) + offset_of(rank, ranks);
}

// Combines the values of the first `covered` ranks.
int64_t reduced(int32_t op, int covered, int ranks, size_t index, const TypeRow &type) {
    if (op == 4) return base_at(index, type);
    int64_t all = value_of(0, ranks, index, type);
    for (int rank = 1; rank < covered; rank++) {
        const int64_t value = value_of(rank, ranks, index, type);
        switch (op) {
        case 0: all += value; break;
        case 1: all *= value; break;
        case 2: all = std::max(all, value); break;
        default: all = std::min(all, value);
        }
    }
    return all;
}

// Returns the bits of a small whole number, little-endian as the machine is.
uint64_t bits_of(int64_t value, const TypeRow &type) {
    if (!type.is_float() || value == 0) return static_cast<uint64_t>(value);
    const auto magnitude = static_cast<uint64_t>(std::llabs(value));
    const int exponent = 63 - __builtin_clzll(magnitude);
    const int bias = (1 << (type.exponent_bits - 1)) - 1;
    const uint64_t mantissa =
        (magnitude << type.mantissa_bits >> exponent) & ((uint64_t{1} << type.mantissa_bits) - 1);
    const uint64_t sign = value < 0 ? 1 : 0;
    return (sign << type.exponent_bits | static_cast<uint64_t>(exponent + bias))
               << type.mantissa_bits |
           mantissa;
}

bool is_intact(const std::vector<std::byte> &buffer) {
    return buffer.empty() || std::all_of(buffer.end() - guard_bytes, buffer.end(),
                                         [](std::byte each) { return each == guard; });
}

} // namespace

CallBuffers::CallBuffers(const Call &call, int rank, int ranks, bool is_in_place)
    : call_(call), rank_(rank), ranks_(ranks) {
    const TypeRow &type = type_row(call.type);
    // In place, a call that scatters sends from the larger vector, and one that gathers receives
    // into it.
    const bool sends_larger = send_count() > vector_count();
    if (call.kind == Kind::messages) is_in_place = false;
    if (!is_in_place || sends_larger) send_.resize(bytes(send_count()) + guard_bytes, guard);
    if (!is_in_place || !sends_larger) recv_.resize(bytes(vector_count()) + guard_bytes, guard);
    auto *values = static_cast<std::byte *>(const_cast<void *>(send()));
    for (size_t i = 0; i < send_count(); i++) {
        const uint64_t bits = bits_of(value_of(rank, ranks, i, type), type);
        std::memcpy(values + i * type.bytes, &bits, type.bytes);
    }
}

size_t CallBuffers::send_count() const {
    return call_.count * static_cast<size_t>(call_.scatters() || call_.exchanges() ? ranks_ : 1);
}
size_t CallBuffers::vector_count() const {
    return call_.count * static_cast<size_t>(call_.gathers() || call_.exchanges() ? ranks_ : 1);
}
size_t CallBuffers::recv_count() const { return call_.has_result(rank_) ? vector_count() : 0; }

const void *CallBuffers::send() const {
    if (!send_.empty()) return send_.data();
    return recv_.data() + (call_.gathers() ? bytes(call_.count) * static_cast<size_t>(rank_) : 0);
}
void *CallBuffers::recv() { return const_cast<std::byte *>(received().data()); }

std::span<const std::byte> CallBuffers::received() const {
    if (!recv_.empty()) return {recv_.data(), bytes(recv_count())};
    return {send_.data() + bytes(call_.count) * static_cast<size_t>(rank_), bytes(call_.count)};
}

int64_t CallBuffers::expected(size_t index) const {
    const TypeRow &type = type_row(call_.type);
    switch (call_.kind) {
    case Kind::all_gather:
    case Kind::gather:
        return value_of(static_cast<int>(index / call_.count), ranks_, index % call_.count, type);
    case Kind::all_to_all:
        return value_of(static_cast<int>(index / call_.count), ranks_,
                        index % call_.count + call_.count * static_cast<size_t>(rank_), type);
    case Kind::broadcast: return value_of(call_.root, ranks_, index, type);
    case Kind::scatter:
        return value_of(call_.root, ranks_, index + call_.count * static_cast<size_t>(rank_), type);
    case Kind::reduce_scatter:
        return reduced(call_.op, ranks_, ranks_, index + call_.count * static_cast<size_t>(rank_),
                       type);
    case Kind::scan: return reduced(call_.op, rank_ + 1, ranks_, index, type);
    case Kind::exscan: return reduced(call_.op, rank_, ranks_, index, type);
    case Kind::messages: return value_of((rank_ + ranks_ - 1) % ranks_, ranks_, index, type);
    default: return reduced(call_.op, ranks_, ranks_, index, type);
    }
}

bool CallBuffers::are_right() const {
    const TypeRow &type = type_row(call_.type);
    const uint64_t all = ~uint64_t{0} >> (64 - 8 * type.bytes);
    for (size_t i = 0; i < recv_count(); i++) {
        uint64_t bits = 0;
        std::memcpy(&bits, received().data() + i * type.bytes, type.bytes);
        const uint64_t wanted = bits_of(expected(i), type) & all;
        const bool is_minus_zero = type.is_float() && wanted == 0 && bits == all - (all >> 1);
        if (bits != wanted && !is_minus_zero) return false;
    }
    return true;
}

bool CallBuffers::are_intact() const { return is_intact(send_) && is_intact(recv_); }

} // namespace sequences
