// The arithmetic of call_values.hpp.
#include "call_values.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace stress {

namespace {

// Returns what a rank adds to each small value. These offsets sum to 0 over all ranks, so that
// averages are whole. Integers are positive, because unsigned ones could not be averaged otherwise.
int64_t offset_of(int rank, int ranks) {
    if (rank == ranks - 1 && ranks % 2 == 1) return 0;
    return rank % 2 == 0 ? 1 : -1;
}

// Returns the bits of a small whole number in a float type, little-endian as the machine is.
uint64_t float_bits(int64_t value, const TypeRow &type) {
    if (value == 0) return 0;
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

double float_value(uint64_t bits, const TypeRow &type) {
    const uint64_t mantissa = bits & ((uint64_t{1} << type.mantissa_bits) - 1);
    const uint64_t exponent =
        bits >> type.mantissa_bits & ((uint64_t{1} << type.exponent_bits) - 1);
    const bool is_negative = (bits >> (8 * type.value_bytes - 1) & 1) != 0;
    const int bias = (1 << (type.exponent_bits - 1)) - 1;
    const uint64_t whole = exponent == 0 ? mantissa : mantissa | uint64_t{1} << type.mantissa_bits;
    const int scale = static_cast<int>(std::max<uint64_t>(exponent, 1)) - bias - type.mantissa_bits;
    const double magnitude = std::ldexp(static_cast<double>(whole), scale);
    return is_negative ? -magnitude : magnitude;
}

// Returns by how much a codec may change the values of calls of up to six ranks, which are at most
// 12. Codecs that drop values may change any of them into zero, or carry it to the next one.
double tolerance_of(const char *codec) { return std::strcmp(codec, "int8") == 0 ? 3 : 100; }

} // namespace

CallValues::CallValues(const Call &call, int ranks)
    : call_(call), type_(type_row(call.type)), ranks_(ranks), has_any_bits_(are_any_bits()) {}

// Whether the elements are not looked into, or by functions of the program alone.
bool CallValues::are_any_bits() const {
    if (call_.reduces()) return call_.op == Op::made || call_.op == Op::made_in_order;
    return call_.codec == nullptr;
}

void CallValues::write_any_bits(int rank, size_t index, std::byte *element) const {
    for (uint32_t i = 0; i < type_.bytes; i += 8) {
        const uint64_t bits =
            mixed(mixed(uint64_t{call_.salt} << 32 | static_cast<uint64_t>(rank) << 8 | i) + index);
        std::memcpy(element + i, &bits, std::min<size_t>(type_.bytes - i, 8));
    }
}

int64_t CallValues::fitted(int64_t value) const {
    if (type_.has_floats()) return value;
    const auto shift = static_cast<int>(64 - 8 * type_.value_bytes);
    const uint64_t high = static_cast<uint64_t>(value) << shift;
    const bool is_unsigned = type_.of == TypeClass::unsigned_integer;
    return is_unsigned || type_.of == TypeClass::boolean ? static_cast<int64_t>(high >> shift)
                                                         : static_cast<int64_t>(high) >> shift;
}

CallValues::Value CallValues::input(int rank, size_t index) const {
    const size_t place = index + call_.salt % 997;
    const auto base = static_cast<int64_t>(place * 7 % 3);
    const int64_t offset = offset_of(rank, ranks_);
    const uint64_t drawn =
        mixed(mixed(uint64_t{call_.salt} << 8 | static_cast<uint64_t>(rank)) + index);
    switch (type_.of) {
    case TypeClass::real: return {base - 1 + offset, 0};
    case TypeClass::complex: return {base - 1 + offset, static_cast<int64_t>(place % 3) - offset};
    case TypeClass::pair:
        return {static_cast<int64_t>(drawn % 5) - 2, static_cast<int64_t>(drawn / 8 % 100)};
    case TypeClass::boolean:
        return {drawn % 3 == 0 ? 0 : fitted(static_cast<int64_t>(drawn >> 8)), 0};
    default: break;
    }
    if (call_.op == Op::avg) return {base + 1 + offset, 0};
    const bool is_zero = call_.op >= Op::logical_and && drawn % 3 == 0;
    return {is_zero ? 0 : fitted(static_cast<int64_t>(drawn >> 8)), 0};
}

int64_t CallValues::combine_integers(int64_t accumulator, int64_t value) const {
    const auto one = static_cast<uint64_t>(accumulator), other = static_cast<uint64_t>(value);
    const bool is_less =
        type_.of == TypeClass::unsigned_integer ? one < other : accumulator < value;
    switch (call_.op) {
    case Op::prod: return static_cast<int64_t>(one * other);
    case Op::max: return is_less ? value : accumulator;
    case Op::min: return is_less ? accumulator : value;
    case Op::bit_and: return accumulator & value;
    case Op::bit_or: return accumulator | value;
    case Op::bit_xor: return accumulator ^ value;
    case Op::logical_and: return accumulator != 0 && value != 0;
    case Op::logical_or: return accumulator != 0 || value != 0;
    case Op::logical_xor: return (accumulator != 0) != (value != 0);
    default: return static_cast<int64_t>(one + other);
    }
}

void CallValues::combine(Value &accumulator, Value value) const {
    if (type_.of == TypeClass::pair) {
        const bool wants_less = call_.op == Op::min_loc;
        const bool is_better =
            wants_less ? value.first < accumulator.first : value.first > accumulator.first;
        const bool is_equal = value.first == accumulator.first;
        if (is_better || (is_equal && value.second < accumulator.second)) accumulator = value;
        return;
    }
    if (type_.of == TypeClass::boolean) {
        accumulator = {accumulator.first != 0, 0};
        value = {value.first != 0, 0};
    }
    if (type_.of == TypeClass::complex && call_.op == Op::prod) {
        const Value a = accumulator;
        accumulator = {a.first * value.first - a.second * value.second,
                       a.first * value.second + a.second * value.first};
        return;
    }
    accumulator.first = fitted(combine_integers(accumulator.first, value.first));
    accumulator.second = combine_integers(accumulator.second, value.second);
}

CallValues::Value CallValues::combined(int covered, size_t index) const {
    const auto scaled = [&](int rank) {
        Value value = input(rank, index);
        if (call_.op != Op::pre_mul_sum) return value;
        return Value{fitted(value.first * scalar_of(rank)), value.second * scalar_of(rank)};
    };
    Value all = scaled(0);
    for (int rank = 1; rank < covered; rank++) combine(all, scaled(rank));
    if (call_.op == Op::avg) all = {all.first / covered, all.second / covered};
    return all;
}

bool CallValues::is_part(int64_t value, const std::byte *bytes) const {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes, type_.value_bytes);
    const uint64_t all = ~uint64_t{0} >> (64 - 8 * type_.value_bytes);
    if (!type_.has_floats()) return bits == (static_cast<uint64_t>(value) & all);
    if (!is_exact(call_))
        return std::abs(float_value(bits, type_) - static_cast<double>(value)) <=
               tolerance_of(call_.codec);
    const bool is_minus_zero = value == 0 && bits == all - (all >> 1);
    return bits == float_bits(value, type_) || is_minus_zero;
}

bool CallValues::is_value(Value value, const std::byte *element) const {
    if (!is_part(value.first, element)) return false;
    if (type_.of == TypeClass::complex) return is_part(value.second, element + type_.value_bytes);
    if (type_.of != TypeClass::pair) return true;
    int32_t index = 0;
    std::memcpy(&index, element + type_.index_at, sizeof index);
    const auto is_padding_zero = [&](uint32_t from, uint32_t to) {
        return std::all_of(element + from, element + to,
                           [](std::byte each) { return each == std::byte{0}; });
    };
    return index == value.second && is_padding_zero(type_.value_bytes, type_.index_at) &&
           is_padding_zero(type_.index_at + 4, type_.bytes);
}

void CallValues::write_input(int rank, size_t index, std::byte *element) const {
    if (has_any_bits_) return write_any_bits(rank, index, element);
    const Value value = input(rank, index);
    const auto write = [&](int64_t part, size_t at) {
        const uint64_t bits =
            type_.has_floats() ? float_bits(part, type_) : static_cast<uint64_t>(part);
        std::memcpy(element + at, &bits, type_.value_bytes);
    };
    std::memset(element, 0, type_.bytes);
    write(value.first, 0);
    if (type_.of == TypeClass::complex) write(value.second, type_.value_bytes);
    if (type_.of != TypeClass::pair) return;
    const auto place = static_cast<int32_t>(value.second);
    std::memcpy(element + type_.index_at, &place, sizeof place);
}

bool CallValues::is_input(int rank, size_t index, const std::byte *element) const {
    if (!has_any_bits_) return is_value(input(rank, index), element);
    std::byte expected[max_element_bytes];
    write_any_bits(rank, index, expected);
    return std::memcmp(element, expected, type_.bytes) == 0;
}

bool CallValues::is_combined(int covered, size_t index, const std::byte *element) const {
    if (!has_any_bits_) return is_value(combined(covered, index), element);
    std::byte all[max_element_bytes], next[max_element_bytes];
    write_any_bits(0, index, all);
    for (int rank = 1; rank < covered; rank++) {
        write_any_bits(rank, index, next);
        for (uint32_t i = 0; i < type_.bytes; i++)
            all[i] = combine_bytes(all[i], next[i], call_.op == Op::made_in_order);
    }
    return std::memcmp(element, all, type_.bytes) == 0;
}

void CallValues::write_scalar(int rank, int32_t type, std::byte *element) {
    const TypeRow &row = type_row(type);
    const int64_t scalar = scalar_of(rank);
    const uint64_t bits =
        row.has_floats() ? float_bits(scalar, row) : static_cast<uint64_t>(scalar);
    std::memset(element, 0, row.bytes);
    std::memcpy(element, &bits, row.value_bytes);
}

std::byte CallValues::combine_bytes(std::byte accumulator, std::byte value, bool in_order) {
    const int one = std::to_integer<int>(accumulator), other = std::to_integer<int>(value);
    return static_cast<std::byte>(in_order ? 3 * one + other : one + other);
}

} // namespace stress
