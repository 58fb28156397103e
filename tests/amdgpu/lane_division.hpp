// The three instructions with which AMD GPUs make a correctly rounded division out of an
// approximate reciprocal: v_div_scale scales operands away from the ends of the range, v_div_fmas
// undoes the scaling while it rounds, v_div_fixup puts in the results that no arithmetic gives.
// Written after the manuals of RDNA 3 and CDNA 3. Translated kernels call these functions for each
// lane; the functions are pure.
#pragma once

#include "lane_numbers.hpp"

namespace amdgpu {

// Holds a product of two doubles, and a few bits more.
#ifdef __SIZEOF_FLOAT128__
using Quadruple = __float128;
#else
using Quadruple = long double;
#endif

template <class T> struct DivisionLimits;
template <> struct DivisionLimits<f32> {
    using Wide = f64;
    static constexpr int scale = 64, far_apart = 96, tiny_numerator = 23, vanishes = -150;
};
template <> struct DivisionLimits<f64> {
    using Wide = Quadruple;
    static constexpr int scale = 128, far_apart = 768, tiny_numerator = 53, vanishes = -1075;
};

template <class T> int exponent_field(T x) {
    constexpr int digits = std::numeric_limits<T>::digits;
    constexpr Bits<T> mask = std::numeric_limits<T>::max_exponent * 2 - 1;
    return static_cast<int>(std::bit_cast<Bits<T>>(x) >> (digits - 1) & mask);
}
template <class T> bool is_subnormal(T x) { return std::fpclassify(x) == FP_SUBNORMAL; }

template <class T> struct Scaled {
    T value;
    bool flag; // v_div_fmas has to undo the scaling
};

// Returns `a` scaled; `a` is the denominator or the numerator.
template <class T> Scaled<T> div_scale(T a, T denominator, T numerator) {
    using Limits = DivisionLimits<T>;
    if (numerator == 0 || denominator == 0) return {std::numeric_limits<T>::quiet_NaN(), false};
    const T up = std::ldexp(a, Limits::scale), down = std::ldexp(a, -Limits::scale);
    const bool is_denominator = a == denominator;
    const bool tiny_inverse = is_subnormal(T(1) / denominator),
               tiny_quotient = is_subnormal(numerator / denominator);
    if (exponent_field(numerator) - exponent_field(denominator) >= Limits::far_apart)
        return {is_denominator ? up : a, true};
    if (is_subnormal(denominator)) return {up, false};
    // The manuals print a scale that would overflow here. This scale makes the quotient right.
    if (tiny_inverse && tiny_quotient) return {is_denominator ? down : a, true};
    if (tiny_inverse) return {down, false};
    if (tiny_quotient) return {a == numerator ? up : a, true};
    if (exponent_field(numerator) <= Limits::tiny_numerator) return {up, false};
    return {a, false};
}

template <class T> T div_fmas(T a, T b, T c, bool flag) {
    using Limits = DivisionLimits<T>;
    if (!flag) return settle(std::fma(a, b, c), a, b, c);
    // Rounds only once, also where the result is subnormal.
    using Wide = typename Limits::Wide;
    const Wide exact = static_cast<Wide>(a) * static_cast<Wide>(b) + static_cast<Wide>(c);
    const bool is_large = exponent_field(c) >= std::numeric_limits<T>::max_exponent;
    const T scale = std::ldexp(T(1), is_large ? Limits::scale : -Limits::scale);
    return settle(static_cast<T>(exact * static_cast<Wide>(scale)), a, b, c);
}

template <class T> T div_fixup(T quotient, T denominator, T numerator) {
    using Limits = DivisionLimits<T>;
    constexpr T infinity = std::numeric_limits<T>::infinity();
    if (numerator != numerator) return quiet(numerator);
    if (denominator != denominator) return quiet(denominator);
    const T sign = std::signbit(denominator) != std::signbit(numerator) ? T(-1) : T(1);
    if ((denominator == 0 && numerator == 0) || (std::isinf(denominator) && std::isinf(numerator)))
        return -std::numeric_limits<T>::quiet_NaN();
    if (denominator == 0 || std::isinf(numerator)) return sign * infinity;
    if (std::isinf(denominator) || numerator == 0) return sign * T(0);
    if (exponent_field(numerator) - exponent_field(denominator) < Limits::vanishes)
        return sign * T(0);
    return std::copysign(quotient != quotient ? infinity : quotient, sign);
}

} // namespace amdgpu
