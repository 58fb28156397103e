// The C++ type of each accumulator, and how a reduction combines two of its values: numbers,
// complex numbers, truth values, and pairs of a value and an index. Every tier and every GPU
// includes this file. What it defines gives the same bytes whatever the order of pairs and truth
// values is. Any thread may call.
#pragma once

#include "codec/codec.hpp"
#include "kernels/codec/number.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace qccl {

// ---- Elements that are more than a number

template <std::floating_point T> struct Complex { T re, im; };

// Any byte but zero is true. Reductions write 0 or 1.
struct Boolean {
    uint8_t byte;

    constexpr bool is_true() const { return byte != 0; }
};

// A value and its index where C puts them. Padding has names, so that a copy moves it and a
// reduction writes zeros to it.
template <class V> struct IndexedValue {
    V value;
    int32_t index;
};
template <class V>
requires(sizeof(V) == 8) struct IndexedValue<V> {
    V value;
    int32_t index;
    uint32_t padding;
};
template <> struct IndexedValue<int16_t> {
    int16_t value;
    uint16_t padding;
    int32_t index;
};

template <class T> inline constexpr bool is_complex = false;
template <class T> inline constexpr bool is_complex<Complex<T>> = true;
template <class T> inline constexpr bool is_pair = false;
template <class V> inline constexpr bool is_pair<IndexedValue<V>> = true;

// Calls f with a value of the C++ type that `accumulator` names.
template <class F> void with_accumulator(DataType accumulator, F &&f) {
    switch (accumulator) {
    case DataType::int8: return f(int8_t{});
    case DataType::uint8: return f(uint8_t{});
    case DataType::int16: return f(int16_t{});
    case DataType::uint16: return f(uint16_t{});
    case DataType::int32: return f(int32_t{});
    case DataType::uint32: return f(uint32_t{});
    case DataType::int64: return f(int64_t{});
    case DataType::uint64: return f(uint64_t{});
    case DataType::float64: return f(double{});
    case DataType::complex64: return f(Complex<float>{});
    case DataType::complex128: return f(Complex<double>{});
    case DataType::boolean: return f(Boolean{});
    case DataType::float_int: return f(IndexedValue<float>{});
    case DataType::double_int: return f(IndexedValue<double>{});
    case DataType::long_int: return f(IndexedValue<int64_t>{});
    case DataType::int_int: return f(IndexedValue<int32_t>{});
    case DataType::short_int: return f(IndexedValue<int16_t>{});
    default: return f(float{});
    }
}

// Loads a value for an accumulator of type T. All but floats have the accumulator's own type.
template <class T> T load_as(DataType in, const void *src, size_t i) {
    if constexpr (std::floating_point<T>)
        return static_cast<T>(load_float(in, src, i));
    else
        return load_bits<T>(src, i);
}

// ---- Combining two values

// Combines two values; NaN need not be canonical. Integers wrap. avg only adds; the division
// follows once, at the end. The operation must be one that the type takes.
template <std::floating_point T> constexpr T combine_raw(RedOp op, T a, T b) {
    switch (op) {
    case RedOp::prod: return a * b;
    case RedOp::max: return maximum(a, b);
    case RedOp::min: return minimum(a, b);
    default: return a + b;
    }
}
template <std::integral T> constexpr T combine_raw(RedOp op, T a, T b) {
    const auto wide_a = static_cast<uint64_t>(a), wide_b = static_cast<uint64_t>(b);
    switch (op) {
    case RedOp::prod: return static_cast<T>(wide_a * wide_b);
    case RedOp::max: return a > b ? a : b;
    case RedOp::min: return a < b ? a : b;
    case RedOp::bit_and: return static_cast<T>(a & b);
    case RedOp::bit_or: return static_cast<T>(a | b);
    case RedOp::bit_xor: return static_cast<T>(a ^ b);
    case RedOp::logical_and: return static_cast<T>((a != 0) & (b != 0));
    case RedOp::logical_or: return static_cast<T>((a != 0) | (b != 0));
    case RedOp::logical_xor: return static_cast<T>((a != 0) ^ (b != 0));
    default: return static_cast<T>(wide_a + wide_b);
    }
}
// Multiplies parts of complex numbers. GCC 12 fuses the two last steps of a complex product
// (fmaddsub) whatever -ffp-contract says, so the product is hidden from it where the processor
// could.
template <std::floating_point T> constexpr T rounded_product(T a, T b) {
    T product = a * b;
#if defined(__GNUC__) && !defined(__clang__) && defined(__FMA__)
    if (!std::is_constant_evaluated()) asm("" : "+x"(product));
#endif
    return product;
}
// Each product and each sum is rounded by itself, and infinities get no treatment of their own, so
// that the order of the factors does not matter.
template <class T> constexpr Complex<T> combine_raw(RedOp op, Complex<T> a, Complex<T> b) {
    if (op != RedOp::prod) return {a.re + b.re, a.im + b.im};
    return {rounded_product(a.re, b.re) - rounded_product(a.im, b.im),
            rounded_product(a.re, b.im) + rounded_product(a.im, b.re)};
}
constexpr Boolean combine_raw(RedOp op, Boolean a, Boolean b) {
    switch (op) {
    case RedOp::min:
    case RedOp::bit_and:
    case RedOp::logical_and: return {static_cast<uint8_t>(a.is_true() && b.is_true())};
    case RedOp::bit_xor:
    case RedOp::logical_xor: return {static_cast<uint8_t>(a.is_true() != b.is_true())};
    default: return {static_cast<uint8_t>(a.is_true() || b.is_true())};
    }
}

// Whether min_loc or max_loc takes pair a rather than b. A NaN comes before every number. Among
// equal values, and among NaNs, the smaller index comes first; zeros are equal. Zeros of the same
// index are taken as min and max take them.
template <class V>
constexpr bool comes_first(RedOp op, const IndexedValue<V> &a, const IndexedValue<V> &b) {
    const bool wants_less = op == RedOp::min_loc, has_smaller_index = a.index < b.index;
    if constexpr (std::floating_point<V>) {
        if (is_unordered(a.value, b.value)) {
            const bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
            return a_is_nan && (!b_is_nan || has_smaller_index);
        }
        if (a.value == b.value && a.index == b.index)
            return is_negative_zero(a.value) == wants_less;
    }
    return a.value == b.value ? has_smaller_index : (a.value < b.value) == wants_less;
}
template <class V>
constexpr IndexedValue<V> combine_raw(RedOp op, const IndexedValue<V> &a,
                                      const IndexedValue<V> &b) {
    const bool is_a = comes_first(op, a, b);
    IndexedValue<V> taken{}; // with padding of zeros
    taken.value = is_a ? a.value : b.value;
    taken.index = is_a ? a.index : b.index;
    return taken;
}

// Makes every NaN the canonical one.
template <class T> constexpr T canonical_element(T x) {
    if constexpr (std::floating_point<T>) {
        return canonical(x);
    } else if constexpr (is_complex<T>) {
        return {canonical(x.re), canonical(x.im)};
    } else if constexpr (is_pair<T>) {
        if constexpr (std::floating_point<decltype(x.value)>) x.value = canonical(x.value);
    }
    return x;
}

// Combines two values; NaN becomes canonical.
template <class T> constexpr T combine(RedOp op, T a, T b) {
    return canonical_element(combine_raw(op, a, b));
}

// Adds what a codec has lost of a value to a residual. Each operation is rounded by itself.
template <std::floating_point T>
constexpr T kept_error(T residual, T value, T decoded, uint32_t factor) {
    const T error = (value - decoded) * static_cast<T>(factor);
    const T kept = residual + error;
    constexpr T largest = std::numeric_limits<T>::max();
    return kept >= -largest && kept <= largest ? kept : T{0};
}

// Returns the momentum of a state, which is given in thousandths.
template <std::floating_point T> constexpr T momentum_of(uint32_t thousandths) {
    return static_cast<T>(thousandths) / static_cast<T>(whole_momentum);
}
// Returns the velocity after a value. Each operation is rounded by itself.
template <std::floating_point T> constexpr T next_velocity(T velocity, T momentum, T value) {
    const T kept = velocity * momentum;
    return kept + value;
}
// Returns what a state keeps of a velocity: one that is not finite would never be again.
template <std::floating_point T> constexpr T finite_velocity(T velocity) {
    constexpr T largest = std::numeric_limits<T>::max();
    return velocity >= -largest && velocity <= largest ? velocity : T{0};
}
// Returns what remains of a velocity after an encode: nothing where the bytes have the value.
template <std::floating_point T> constexpr T masked_velocity(T velocity, T decoded) {
    return decoded == 0 ? velocity : T{0};
}

// Divides truly; integers truncate toward zero. Types without avg keep the value.
template <class T> constexpr T divided(T a, uint32_t ranks) {
    if constexpr (std::floating_point<T>)
        return canonical(a / static_cast<T>(ranks));
    else if constexpr (is_complex<T>)
        return {divided(a.re, ranks), divided(a.im, ranks)};
    else if constexpr (!std::integral<T>)
        return a;
    else if constexpr (std::is_signed_v<T>)
        return static_cast<T>(int64_t{a} / int64_t{ranks});
    else
        return static_cast<T>(uint64_t{a} / uint64_t{ranks});
}

} // namespace qccl
