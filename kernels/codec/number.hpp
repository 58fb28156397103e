// Numbers, one at a time, for the kernels of CPUs and GPUs. Numbers of 8 and 16 bits: how they
// widen, how a wider value rounds to them, and the minimum and maximum of reductions, in portable
// constexpr integer arithmetic. Values in memory: loads and stores floats of every format; pointers
// need no alignment. combine.hpp combines values.
#pragma once

#include "base/types.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace qccl {

// What a finite value beyond the largest number becomes. Under both policies an infinity stays an
// infinity if the format has one and becomes NaN otherwise. An infinity never becomes a finite
// number.
enum class Overflow : uint8_t { infinity, saturate };

// A format is a sign, an exponent of `exponent_bits` and a fraction of `fraction_bits`.
struct Half {
    static constexpr int exponent_bits = 5, fraction_bits = 10;
    static constexpr uint32_t sign = 0x8000, infinity = 0x7C00, nan = 0x7E00, largest = 0x7BFF;
    static constexpr Overflow stored = Overflow::infinity; // as a type; cast codecs saturate
};
struct Bfloat {
    static constexpr int exponent_bits = 8, fraction_bits = 7;
    static constexpr uint32_t sign = 0x8000, infinity = 0x7F80, nan = 0x7FC0, largest = 0x7F7F;
    static constexpr Overflow stored = Overflow::infinity;
};
// OCP's OFP8. E4M3 has no infinity; its only NaN is all ones.
struct E4m3 {
    static constexpr int exponent_bits = 4, fraction_bits = 3;
    static constexpr uint32_t sign = 0x80, infinity = 0x7F, nan = 0x7F, largest = 0x7E;
    static constexpr Overflow stored = Overflow::saturate;
};
struct E5m2 {
    static constexpr int exponent_bits = 5, fraction_bits = 2;
    static constexpr uint32_t sign = 0x80, infinity = 0x7C, nan = 0x7E, largest = 0x7B;
    static constexpr Overflow stored = Overflow::saturate;
};

// The type that holds a number of a format, or of a C++ type, in memory.
template <class F> struct StorageOf {
    using Type = std::conditional_t<(F::sign > 0xFF), uint16_t, uint8_t>;
};
template <class T>
requires std::is_arithmetic_v<T>
struct StorageOf<T> {
    using Type = T;
};
template <class F> using Storage = typename StorageOf<F>::Type;

inline constexpr uint32_t float_infinity = 0x7F800000U, float_nan = 0x7FC00000U;
inline constexpr uint64_t double_nan = 0x7FF8000000000000ULL;

constexpr float canonical(float x) { return x == x ? x : std::bit_cast<float>(float_nan); }
constexpr double canonical(double x) { return x == x ? x : std::bit_cast<double>(double_nan); }

template <class T> constexpr bool is_finite(T x) {
    return x - x == T(0); // an infinity minus itself is NaN
}

template <class T> constexpr bool is_unordered(T a, T b) {
    return (a != a) | (b != b); // one of them is NaN
}

// Widens exactly: every value of the formats above is a float. Every NaN becomes the canonical one.
template <class F> constexpr float widen(uint32_t bits) {
    constexpr int bias = (1 << (F::exponent_bits - 1)) - 1;
    const uint32_t magnitude = bits & (F::sign - 1);
    const float sign = (bits & F::sign) != 0 ? -1.0F : 1.0F;
    if (magnitude > F::largest) {
        if (magnitude == F::infinity && F::infinity != F::nan)
            return sign * std::numeric_limits<float>::infinity();
        return std::bit_cast<float>(float_nan);
    }
    // Moves the fields to where a float has them, then multiplies by the difference of the biases.
    // The product is exact, even if the float is subnormal.
    const float moved = std::bit_cast<float>(magnitude << (23 - F::fraction_bits));
    constexpr float power = std::bit_cast<float>(static_cast<uint32_t>(254 - bias) << 23);
    return sign * moved * power;
}

// The same in fewer instructions, for kernels that make NaN canonical at the end: a NaN stays a
// NaN, but need not stay the same one.
template <class F> constexpr float widen_number(uint32_t bits) {
    constexpr int bias = (1 << (F::exponent_bits - 1)) - 1;
    constexpr int unused = 31 - F::exponent_bits - F::fraction_bits;
    constexpr uint32_t magnitude = (F::sign - 1) << (23 - F::fraction_bits);
    // Moves the fields to where a float has them. The shift copies the sign, and the mask leaves
    // one of the copies.
    const auto raised = static_cast<int32_t>(bits << unused);
    const uint32_t moved =
        static_cast<uint32_t>(raised >> (8 - F::exponent_bits)) & (1U << 31 | magnitude);
    if constexpr (F::exponent_bits == 8) return std::bit_cast<float>(moved);
    if constexpr (F::largest < F::sign - 1)
        if ((moved & magnitude) > F::largest << (23 - F::fraction_bits))
            return std::bit_cast<float>(moved |
                                        (F::infinity == F::nan ? float_nan : float_infinity));
    return std::bit_cast<float>(moved) *
           std::bit_cast<float>(static_cast<uint32_t>(254 - bias) << 23);
}

template <class F> inline constexpr float largest_number = widen<F>(F::largest);

// Whether the type's row states the numbers that the format has.
template <class F> constexpr bool is_stated(DataType type) {
    constexpr int bias = (1 << (F::exponent_bits - 1)) - 1;
    constexpr int top = static_cast<int>(F::largest >> F::fraction_bits);
    return info(type).format == FloatFormat{.fraction_bits = F::fraction_bits,
                                            .lowest = 1 - bias,
                                            .highest = top - bias,
                                            .largest = double{largest_number<F>}};
}
static_assert(is_stated<Half>(DataType::float16) && is_stated<Bfloat>(DataType::bfloat16) &&
              is_stated<E4m3>(DataType::float8e4m3) && is_stated<E5m2>(DataType::float8e5m2));

// Returns the pattern of the same number; every NaN becomes the canonical one.
template <class F> constexpr uint32_t canonical_pattern(uint32_t bits) {
    constexpr uint32_t last = F::infinity == F::nan ? F::largest : F::infinity;
    return (bits & (F::sign - 1)) > last ? F::nan : bits;
}

// Rounds once to nearest even. Going from double through float would round twice.
template <class F, Overflow overflow = F::stored> constexpr uint32_t narrow(double x) {
    constexpr int bias = (1 << (F::exponent_bits - 1)) - 1;
    constexpr int lowest = 1 - bias; // exponent of the smallest normal number
    const uint64_t bits = std::bit_cast<uint64_t>(x);
    const uint32_t sign = (bits >> 63) != 0 ? F::sign : 0;
    const uint64_t magnitude = bits & (~0ULL >> 1);
    constexpr uint64_t double_infinity = 0x7FF0000000000000ULL;
    if (magnitude > double_infinity) return F::nan;
    if (magnitude == double_infinity) return F::infinity == F::nan ? F::nan : sign | F::infinity;

    const int exponent = static_cast<int>(magnitude >> 52) - 1023;
    const uint64_t significand = (magnitude & 0xFFFFFFFFFFFFFULL) | 1ULL << 52;
    const int kept = exponent > lowest ? exponent : lowest;
    const int shift = kept - exponent + 52 - F::fraction_bits;
    if (shift > 53) return sign; // below half of the smallest subnormal, as are subnormal doubles
    const uint64_t rest = significand & ((1ULL << shift) - 1), half = 1ULL << (shift - 1);
    uint64_t rounded = significand >> shift;
    if (rest > half || (rest == half && (rounded & 1) != 0)) rounded++;
    // The hidden bit adds one to the exponent field, and so does a carry out of the fraction.
    const uint64_t encoded = (static_cast<uint64_t>(kept - lowest) << F::fraction_bits) + rounded;
    if (encoded > F::largest)
        return sign | (overflow == Overflow::saturate ? F::largest : F::infinity);
    return sign | static_cast<uint32_t>(encoded);
}

// The same for a float that is not beyond the largest number of the format, in 32-bit arithmetic,
// which is fast on a GPU.
template <class F> constexpr uint32_t narrow_inside(float x) {
    constexpr int bias = (1 << (F::exponent_bits - 1)) - 1, dropped = 23 - F::fraction_bits;
    constexpr uint32_t half = (1U << (dropped - 1)) - 1;
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & (~0U >> 1);
    if constexpr (F::exponent_bits == 8) return (bits + half + (bits >> dropped & 1)) >> dropped;
    const uint32_t sign = (bits >> 31) != 0 ? F::sign : 0;
    constexpr uint32_t smallest_normal = static_cast<uint32_t>(128 - bias) << 23;
    if (magnitude >= smallest_normal) {
        const uint32_t rebiased = magnitude - (static_cast<uint32_t>(127 - bias) << 23);
        return sign | (rebiased + half + (rebiased >> dropped & 1)) >> dropped;
    }
    // The last place of the sum is the smallest subnormal, so the addition rounds to multiples of
    // it.
    constexpr uint32_t grid = static_cast<uint32_t>(128 - bias + dropped) << 23;
    const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(grid);
    return sign | (std::bit_cast<uint32_t>(sum) - grid);
}
// The same for any float.
template <class F, Overflow overflow = F::stored> constexpr uint32_t narrow(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & (~0U >> 1);
    const uint32_t sign = (bits >> 31) != 0 ? F::sign : 0;
    if (magnitude > float_infinity) return F::nan;
    if (magnitude == float_infinity) return F::infinity == F::nan ? F::nan : sign | F::infinity;
    const uint32_t encoded = narrow_inside<F>(std::bit_cast<float>(magnitude));
    if (encoded > F::largest)
        return sign | (overflow == Overflow::saturate ? F::largest : F::infinity);
    return sign | encoded;
}

// ---- Stochastic rounding

// Rounds to one of the two neighbours in the format, away from zero with the probability of the
// value's distance from the other one: adds the draw u = k / 2^16 to the magnitude, in steps of the
// format there, and rounds down. Nothing is rounded before, so that a float and the double that it
// widens to give the same number, and numbers of the format stay. Saturates.
template <class F> constexpr uint32_t narrow_by_chance(float x, uint32_t k) {
    constexpr int bias = (1 << (F::exponent_bits - 1)) - 1, dropped = 23 - F::fraction_bits;
    constexpr uint32_t rebias = static_cast<uint32_t>(127 - bias) << 23;
    const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & (~0U >> 1);
    const uint32_t sign = (bits >> 31) != 0 ? F::sign : 0;
    if (magnitude > float_infinity) return F::nan;
    if (magnitude == float_infinity) return F::infinity == F::nan ? F::nan : sign | F::infinity;
    uint32_t encoded = 0;
    if (F::exponent_bits == 8 || magnitude >= rebias + (1U << 23)) {
        const uint32_t noise = dropped <= 16 ? k >> (dropped <= 16 ? 16 - dropped : 0)
                                             : k << (dropped > 16 ? dropped - 16 : 0);
        encoded = (magnitude - rebias + noise) >> dropped;
    } else {
        // 2^16 steps of the smallest subnormal are one; the product is exact.
        constexpr auto exponent = static_cast<uint32_t>(127 + bias - 1 + F::fraction_bits + 16);
        const float steps = std::bit_cast<float>(magnitude) * std::bit_cast<float>(exponent << 23);
        encoded = (static_cast<uint32_t>(steps) + k) >> 16;
    }
    return sign | (encoded < F::largest ? encoded : F::largest);
}
template <class F> constexpr uint32_t narrow_by_chance(double x, uint32_t k) {
    constexpr int lowest = 2 - (1 << (F::exponent_bits - 1)); // exponent of the smallest normal
    constexpr uint64_t double_infinity = 0x7FF0000000000000ULL;
    const uint64_t bits = std::bit_cast<uint64_t>(x), magnitude = bits & (~0ULL >> 1);
    const uint32_t sign = (bits >> 63) != 0 ? F::sign : 0;
    if (magnitude > double_infinity) return F::nan;
    if (magnitude == double_infinity) return F::infinity == F::nan ? F::nan : sign | F::infinity;
    const int exponent = static_cast<int>(magnitude >> 52) - 1023;
    const uint64_t significand = (magnitude & 0xFFFFFFFFFFFFFULL) | 1ULL << 52;
    const int kept = exponent > lowest ? exponent : lowest;
    // What lies below 2^-16 of a step cannot carry, because u has none of it.
    const int shift = kept - exponent + 52 - F::fraction_bits - 16;
    if (shift > 52) return sign; // below 2^-16 of a step, as are subnormal doubles
    const uint64_t rounded = ((significand >> shift) + k) >> 16;
    const uint64_t encoded = (static_cast<uint64_t>(kept - lowest) << F::fraction_bits) + rounded;
    return sign | static_cast<uint32_t>(encoded < F::largest ? encoded : F::largest);
}

// ---- fp32, minimum and maximum

// Rounds once to nearest even; NaN becomes canonical.
constexpr float narrow_to_float(double x) { return canonical(static_cast<float>(x)); }

// The minimum and maximum of reductions: any NaN gives the canonical NaN, and -0 is less than +0.
// They are written out because instructions and libraries differ in both points.
template <class T> constexpr bool is_negative_zero(T x) {
    if constexpr (sizeof(T) == 8)
        return x == T(0) && std::bit_cast<uint64_t>(x) != 0;
    else
        return x == T(0) && std::bit_cast<uint32_t>(x) != 0;
}
template <class T> constexpr T minimum(T a, T b) {
    const T smaller = a < b || (a == b && is_negative_zero(a)) ? a : b;
    return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : smaller;
}
template <class T> constexpr T maximum(T a, T b) {
    const T larger = a > b || (a == b && is_negative_zero(b)) ? a : b;
    return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : larger;
}

// ---- Values in memory

template <class T> T load_bits(const void *src, size_t i) {
    T value;
    std::memcpy(&value, static_cast<const std::byte *>(src) + i * sizeof(T), sizeof(T));
    return value;
}
template <class T> void store_bits(void *dst, size_t i, T value) {
    std::memcpy(static_cast<std::byte *>(dst) + i * sizeof(T), &value, sizeof(T));
}

// Loads a float of any format exactly. A NaN stays a NaN, but need not stay the same one.
inline double load_float(DataType in, const void *src, size_t i) {
    switch (in) {
    case DataType::float16: return widen<Half>(load_bits<uint16_t>(src, i));
    case DataType::bfloat16: return widen<Bfloat>(load_bits<uint16_t>(src, i));
    case DataType::float8e4m3: return widen<E4m3>(load_bits<uint8_t>(src, i));
    case DataType::float8e5m2: return widen<E5m2>(load_bits<uint8_t>(src, i));
    case DataType::float64: return load_bits<double>(src, i);
    default: return load_bits<float>(src, i);
    }
}

// Stores a float with one rounding; NaN becomes canonical.
inline void store_float(DataType out, void *dst, size_t i, double x) {
    switch (out) {
    case DataType::float16: return store_bits(dst, i, static_cast<uint16_t>(narrow<Half>(x)));
    case DataType::bfloat16: return store_bits(dst, i, static_cast<uint16_t>(narrow<Bfloat>(x)));
    case DataType::float8e4m3: return store_bits(dst, i, static_cast<uint8_t>(narrow<E4m3>(x)));
    case DataType::float8e5m2: return store_bits(dst, i, static_cast<uint8_t>(narrow<E5m2>(x)));
    case DataType::float64: return store_bits(dst, i, canonical(x));
    default: return store_bits(dst, i, narrow_to_float(x));
    }
}

// Calls f with a value of the format that a narrow float has.
template <class F> void with_narrow_format(DataType narrow, F &&f) {
    switch (narrow) {
    case DataType::float16: return f(Half{});
    case DataType::bfloat16: return f(Bfloat{});
    case DataType::float8e4m3: return f(E4m3{});
    case DataType::float8e5m2: return f(E5m2{});
    case DataType::int8:
    case DataType::uint8:
    case DataType::int32:
    case DataType::uint32:
    case DataType::int64:
    case DataType::uint64:
    case DataType::float32:
    case DataType::float64:
    case DataType::int16:
    case DataType::uint16:
    case DataType::complex64:
    case DataType::complex128:
    case DataType::boolean:
    case DataType::float_int:
    case DataType::double_int:
    case DataType::long_int:
    case DataType::int_int:
    case DataType::short_int: return; // not narrow
    }
}

} // namespace qccl
