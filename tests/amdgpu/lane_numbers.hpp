// Implements, one lane at a time, the arithmetic of AMD GPUs that C++ has no operator for: number
// formats, NaNs, minimum and maximum, conversions. Results round to nearest even and subnormals are
// kept; the translator has checked that the code expects this mode.
#pragma once

#include "wave.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>

namespace amdgpu {

// Tags for the 16-bit formats. Arithmetic on them is done in double, which holds any sum or product
// of two such values.
struct f16 {};
struct bf16 {};

template <class T> struct Format {
    using Bits = std::conditional_t<
        sizeof(T) == 8, u64,
        std::conditional_t<sizeof(T) == 4, u32,
                           std::make_unsigned_t<std::conditional_t<sizeof(T) == 2, u16, u8>>>>;
    using Value = T;
    static Value value(Bits bits) { return std::bit_cast<T>(bits); }
    static Bits bits(Value value) { return std::bit_cast<Bits>(value); }
};

// A 16-bit float format; `fraction` is the number of its fraction bits.
template <int fraction> struct SmallFormat {
    using Bits = u16;
    using Value = f64;
    static constexpr int bias = (1 << (14 - fraction)) - 1;
    static constexpr u16 infinity = static_cast<u16>(0x7FFF >> fraction << fraction);
    static constexpr u16 quiet = u16{1} << (fraction - 1);

    static f64 value(u16 bits) {
        const u64 sign = u64{bits} >> 15 << 63, magnitude = bits & 0x7FFF;
        if (magnitude > infinity)
            return std::bit_cast<f64>(sign | u64{0x7FF} << 52 | magnitude << (52 - fraction));
        if (magnitude == infinity) return std::bit_cast<f64>(sign | u64{0x7FF} << 52);
        // A double with the same fields is too small by the difference of the exponent biases.
        const f64 scale = std::bit_cast<f64>(u64(1023 - bias + 1023) << 52);
        return std::bit_cast<f64>(sign | magnitude << (52 - fraction)) * scale;
    }
    static u16 bits(f64 value) {
        const u64 pattern = std::bit_cast<u64>(value);
        const u16 sign = static_cast<u16>(pattern >> 63 << 15);
        if (value != value) {
            const u64 kept = pattern >> (52 - fraction) & 0x7FFF & ~u64{infinity};
            return static_cast<u16>(sign | infinity | quiet | kept);
        }
        // `unit` is the unit in the last place of the result. Dividing by it lets nearbyint round
        // at that place.
        const int exponent =
            std::max(static_cast<int>(pattern >> 52 & 0x7FF) - 1023, 1 - bias) - fraction;
        const f64 unit = std::ldexp(1.0, exponent);
        const f64 rounded = std::nearbyint(std::fabs(value) / unit) * unit;
        if (rounded >= std::ldexp(2.0, bias)) return sign | infinity;
        const f64 scale = std::ldexp(1.0, bias - 1023);
        return static_cast<u16>(sign | std::bit_cast<u64>(rounded * scale) >> (52 - fraction));
    }
};
template <> struct Format<f16> : SmallFormat<10> {};
template <> struct Format<bf16> : SmallFormat<7> {};

template <class T> using Bits = typename Format<T>::Bits;
template <class T> using Value = typename Format<T>::Value;
template <class T> Value<T> from_bits(Bits<T> bits) { return Format<T>::value(bits); }
template <class T, class V> Bits<T> to_bits(V value) {
    if constexpr (std::integral<T>)
        return static_cast<Bits<T>>(value);
    else
        return Format<T>::bits(static_cast<Value<T>>(value));
}

// ---- NaNs. A result that is NaN is the first NaN operand, made quiet. A new NaN is positive.

template <std::floating_point T> T quiet(T nan) {
    constexpr int digits = std::numeric_limits<T>::digits;
    return std::bit_cast<T>(std::bit_cast<Bits<T>>(nan) | Bits<T>{1} << (digits - 2));
}
template <class T> T settle(T result) {
    return result == result ? result : std::numeric_limits<T>::quiet_NaN();
}
template <class T, class... More> T settle(T result, T a, More... more) {
    if (result == result) return result;
    return a != a ? quiet(a) : settle(result, more...);
}

// ---- Modifiers of operands and results.

template <std::floating_point T> T magnitude(T x) { return std::fabs(x); }
template <std::floating_point T> T clamp(T x) { return x > 0 ? std::min(x, T(1)) : T(0); }
template <std::integral T, std::integral V> V clamp_to(V x) {
    using Limits = std::numeric_limits<T>;
    return std::clamp<V>(x, static_cast<V>(Limits::min()), static_cast<V>(Limits::max()));
}

template <std::floating_point T> bool is_signalling(T x) {
    constexpr int digits = std::numeric_limits<T>::digits;
    return x != x && (std::bit_cast<Bits<T>>(x) >> (digits - 2) & 1) == 0;
}

// ---- Minimum and maximum. A number wins over a quiet NaN, a signalling NaN wins over a number,
// and -0 is less than 0.

// Chooses between two values that are equal or of which at least one is a NaN.
template <std::floating_point T> T either(T a, T b, bool wants_negative) {
    if (a == b) return std::signbit(a) == wants_negative ? a : b;
    if (is_signalling(a) || is_signalling(b)) return quiet(is_signalling(a) ? a : b);
    return a != a && b == b ? b : a;
}
template <std::floating_point T> T minimum(T a, T b) {
    return a < b ? a : b < a ? b : either(a, b, true);
}
template <std::floating_point T> T maximum(T a, T b) {
    return a > b ? a : b > a ? b : either(a, b, false);
}
template <std::integral T> T minimum(T a, T b) { return a < b ? a : b; }
template <std::integral T> T maximum(T a, T b) { return a < b ? b : a; }
template <class T> T median(T a, T b, T c) {
    if constexpr (std::floating_point<T>)
        if (a != a || b != b || c != c) return minimum(minimum(a, b), c);
    return maximum(minimum(a, b), minimum(maximum(a, b), c));
}

// ---- Classes of floats, with the bit numbers of v_cmp_class.

template <std::floating_point T>
bool is_class(T x, u32 classes, T smallest = std::numeric_limits<T>::min()) {
    if (x != x) return (classes >> (is_signalling(x) ? 0 : 1) & 1) != 0;
    const bool is_negative = std::signbit(x);
    const T m = std::fabs(x);
    const unsigned size = m == 0 ? 3 : m < smallest ? 2 : std::isinf(m) ? 0 : 1;
    // Bits 2 to 5 are -infinity to -0, and bits 6 to 9 are +0 to +infinity.
    return (classes >> (is_negative ? 2 + size : 9 - size) & 1) != 0;
}

// ---- Conversions to integers round toward zero. NaN becomes 0, and values out of range become the
// nearest limit.

template <std::integral T, std::floating_point F> T to_integer(F x) {
    constexpr F below = static_cast<F>(std::numeric_limits<T>::min());
    const F above = std::ldexp(F(1), std::numeric_limits<T>::digits);
    if (x != x) return 0;
    if (x >= above) return std::numeric_limits<T>::max();
    return x <= below ? std::numeric_limits<T>::min() : static_cast<T>(x);
}

// Converts to 16 bits, rounding toward zero.
inline f64 toward_zero_f16(f32 x) {
    const f64 nearest = from_bits<f16>(to_bits<f16>(f64{x}));
    if (std::fabs(nearest) <= std::fabs(f64{x}) || x != x || std::isinf(x)) return nearest;
    return from_bits<f16>(static_cast<u16>(to_bits<f16>(nearest) - 1));
}

// ---- Parts of floats.

template <std::floating_point T> T fraction_of(T x) { // in [0, 1)
    const T part = x - std::floor(x);
    return std::min(part, std::nextafter(T(1), T(0)));
}
template <std::floating_point T> i32 exponent_of(T x) {
    int exponent = 0;
    if (std::isfinite(x)) std::frexp(x, &exponent);
    return exponent;
}
template <std::floating_point T> T mantissa_of(T x) {
    int exponent = 0;
    return std::isfinite(x) ? std::frexp(x, &exponent) : x;
}

// Computes a * b + c with one rounding for 16 bits: an inexact sum in double is made odd, so that
// rounding it again gives the same result as rounding once.
inline f64 fused_f16(f64 a, f64 b, f64 c) {
    const f64 product = a * b, sum = product + c;
    const f64 part = sum - product;
    const f64 error = (product - (sum - part)) + (c - part);
    const u64 bits = std::bit_cast<u64>(sum);
    if (!(error > 0 || error < 0) || (bits & 1) != 0 || !std::isfinite(sum)) return sum;
    return std::bit_cast<f64>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// ---- Bits.

inline u32 rotate_left(u32 x, unsigned by) { return std::rotl(x, static_cast<int>(by)); }
template <std::unsigned_integral T> T reverse_bits(T x) {
    T reversed = 0;
    for (unsigned i = 0; i < 8 * sizeof x; ++i)
        reversed |= static_cast<T>((x >> i & 1) << (8 * sizeof x - 1 - i));
    return reversed;
}
// Position of the first set bit, counted from the highest or from the lowest; all ones if no bit is
// set.
template <std::unsigned_integral T> u32 first_high(T x) {
    return x == 0 ? ~0U : static_cast<u32>(std::countl_zero(x));
}
template <std::unsigned_integral T> u32 first_low(T x) {
    return x == 0 ? ~0U : static_cast<u32>(std::countr_zero(x));
}
// Number of the highest bits that equal the sign bit; all ones if all bits do.
template <std::unsigned_integral T> u32 sign_run(T x) {
    const T flipped = x >> (8 * sizeof x - 1) != 0 ? static_cast<T>(~x) : x;
    return first_high(flipped);
}
inline u64 low_bits(unsigned count) { return count >= 64 ? ~u64{0} : (u64{1} << count) - 1; }
inline i32 signed_field(u32 x, unsigned offset, unsigned width) {
    if (width == 0) return 0;
    const i32 shifted = static_cast<i32>(x) >> offset;
    return offset + width >= 32
               ? shifted
               : static_cast<i32>(static_cast<u32>(shifted) << (32 - width)) >> (32 - width);
}

// Returns byte `selector` of the eight bytes of high:low, or one of the constants and sign fills of
// v_perm_b32.
inline u32 picked_byte(u32 high, u32 low, u32 selector) {
    const u64 both = u64{high} << 32 | low;
    if (selector >= 13) return 0xFF;
    if (selector == 12) return 0;
    if (selector >= 8) return (both >> (16 * (selector - 8) + 15) & 1) != 0 ? 0xFF : 0;
    return both >> (8 * selector) & 0xFF;
}
inline u32 permute_bytes(u32 high, u32 low, u32 selectors) {
    u32 result = 0;
    for (unsigned i = 0; i < 4; ++i)
        result |= picked_byte(high, low, selectors >> (8 * i) & 0xFF) << (8 * i);
    return result;
}

// ---- Approximate instructions. The hardware promises an error below one unit in the last place
// for floats, and about 24 correct bits for doubles. For floats this emulation returns the nearest
// value in one order of the waves and the value next above the exact one in the other order. For
// doubles it returns a value that is too large in one order and too small in the other. A result
// that depends on the approximation therefore differs between the orders, whereas a division or
// root that corrects the approximation does not. The float next below the exact value would not do:
// the compiler's division of 1 by a significand that is all ones is right only if the reciprocal of
// that significand is not rounded down. The same division of doubles is one unit too small, here as
// on the hardware, whatever the reciprocal.

inline f32 approximate(f64 value, int direction) {
    const f32 nearest = static_cast<f32>(value);
    if (direction < 0 || f64{nearest} >= value || !std::isnormal(nearest)) return nearest;
    return std::nextafter(nearest, std::numeric_limits<f32>::infinity());
}
inline f64 approximate_f64(f64 value, int direction) {
    return std::isnormal(value) ? value * (1 + direction * 0x1p-25) : value;
}

} // namespace amdgpu
