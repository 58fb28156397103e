// The arithmetic of the block codecs, once: how a block's or bucket's scale comes from its
// extremes, a code from a value, a value from a code. Scalar and portable, for CPUs and GPUs;
// WIRE.md says it in words. Knows no memory: where values, codes and scales lie is the kernels'
// business.
#pragma once

#include "kernels/number.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

namespace qccl {

// A draw of noise, k of u = k / 2^16; `nearest` stands for rounding without one.
struct Draw {
    static constexpr uint32_t nearest = ~0U;
    uint32_t k = nearest;
};

// v rounded to an integer of [lowest, highest]. v may be infinite, never NaN.
template <class T> T round_code(T v, Draw draw, T lowest, T highest) {
    const T rounded =
        draw.k == Draw::nearest ? std::rint(v) : std::floor(v + static_cast<T>(draw.k) / T(65536));
    return rounded < lowest ? lowest : rounded > highest ? highest : rounded;
}

// ---- int b: a block shares a scale of 16 bits, and its extreme value takes the lowest code.

// What the block's codes are computed with. Without codes (a block of zeros, or one that is not
// finite) every code is 0.
struct BlockScale {
    uint16_t wire = 0; // bf16
    bool has_codes = false;
    float lift = 1.0F;    // 2^64 where the scale is subnormal, so that its reciprocal is finite
    float inverse = 0.0F; // of the lifted scale
};

// Of two finite values the one of larger magnitude; of equal ones the positive.
constexpr float extreme_of(float a, float b) {
    const float magnitude_a = a < 0 ? -a : a, magnitude_b = b < 0 ? -b : b;
    if (magnitude_a != magnitude_b) return magnitude_a > magnitude_b ? a : b;
    return a < 0 ? b : a;
}

// -extreme / 2^(bits - 1), rounded to bf16 away from zero from the exact quotient, or toward zero
// where the lowest code would decode to an infinity. `extreme` is finite and not zero.
constexpr uint16_t round_scale(float extreme, unsigned bits) {
    const uint32_t pattern = std::bit_cast<uint32_t>(extreme);
    const uint32_t fraction = pattern & 0x7FFFFF, field = pattern >> 23 & 0xFF;
    const uint32_t significand = field != 0 ? fraction | 0x800000 : fraction;
    const int exponent = static_cast<int>(field != 0 ? field : 1) - static_cast<int>(bits - 1);
    const int kept = exponent > 1 ? exponent : 1; // subnormal below
    const int shift = 16 + kept - exponent;       // 16: a bf16 has 16 bits of fraction less
    const uint32_t rounded = (significand + (1U << shift) - 1) >> shift;
    const uint32_t encoded = (static_cast<uint32_t>(kept - 1) << 7) + rounded;
    const uint32_t too_large = (255 - (bits - 1)) << 7; // 2^(128 - (bits - 1))
    const uint32_t sign = extreme > 0 ? 0x8000U : 0U;
    return static_cast<uint16_t>(sign | (encoded < too_large ? encoded : too_large - 1));
}

// `is_finite`: whether all values of the block are; then `extreme` is extreme_of them all.
constexpr BlockScale block_scale(float extreme, bool is_finite, unsigned bits) {
    if (!is_finite) return {.wire = static_cast<uint16_t>(Bfloat::nan)};
    if (extreme == 0) return {};
    constexpr uint32_t smallest_normal = 0x0080, magnitude = 0x7FFF;
    BlockScale scale;
    scale.wire = round_scale(extreme, bits);
    scale.has_codes = true;
    if ((scale.wire & magnitude) < smallest_normal) scale.lift = 0x1p64F;
    scale.inverse = 1.0F / (widen<Bfloat>(scale.wire) * scale.lift);
    return scale;
}

inline int32_t block_code(float x, const BlockScale &scale, unsigned bits, Draw draw) {
    if (!scale.has_codes) return 0;
    const float bound = static_cast<float>(1U << (bits - 1));
    return static_cast<int32_t>(
        round_code(x * scale.lift * scale.inverse, draw, -bound, bound - 1));
}

// A NaN scale gives NaN, made canonical for processors that do not keep it so.
constexpr float block_value(int32_t code, float scale) {
    return canonical(static_cast<float>(code) * scale);
}

// ---- minmax: a bucket shares its minimum and a unit, both fp32. T is float, or double for fp64
// tensors.

template <class T> struct BucketScale {
    float minimum = 0, unit = 0; // as on the wire
    bool has_codes = false;
    T inverse = 0; // of the unit
};

// (maximum - minimum) / (2^bits - 1) as fp32; +0 where that is no normal number.
inline float bucket_unit(float minimum, float maximum, unsigned bits) {
    const float steps = static_cast<float>((1U << bits) - 1), range = maximum - minimum;
    constexpr float largest = std::numeric_limits<float>::max(),
                    smallest = std::numeric_limits<float>::min();
    const float unit = range <= largest ? range / steps : (maximum / 2 - minimum / 2) / steps * 2;
    return unit < smallest ? 0.0F : unit > largest ? largest : unit;
}
inline float bucket_unit(double minimum, double maximum, unsigned bits) {
    constexpr float largest = std::numeric_limits<float>::max(),
                    smallest = std::numeric_limits<float>::min();
    const float unit =
        static_cast<float>((maximum - minimum) / static_cast<double>((1U << bits) - 1));
    return unit < smallest ? 0.0F : unit > largest ? largest : unit;
}

// The bucket's extremes; a bucket with a value that fp32 cannot hold, or that is not finite, is
// NaN.
template <class T>
BucketScale<T> bucket_scale(T minimum, T maximum, bool are_finite, unsigned bits) {
    BucketScale<T> scale;
    const float low = static_cast<float>(minimum), high = static_cast<float>(maximum);
    if (!are_finite || !is_finite(low) || !is_finite(high)) {
        scale.minimum = scale.unit = std::bit_cast<float>(float_nan);
        return scale;
    }
    scale.minimum = low + 0.0F; // -0 becomes +0
    scale.unit = bucket_unit(minimum, maximum, bits);
    if (scale.unit == 0) return scale;
    scale.has_codes = true;
    scale.inverse = T(1) / static_cast<T>(scale.unit);
    return scale;
}

template <class T>
uint32_t bucket_code(T x, const BucketScale<T> &scale, unsigned bits, Draw draw) {
    if (!scale.has_codes) return 0;
    const T offset = x - static_cast<T>(scale.minimum);
    return static_cast<uint32_t>(
        round_code(offset * scale.inverse, draw, T(0), static_cast<T>((1U << bits) - 1)));
}

template <class T> T bucket_value(uint32_t code, float minimum, float unit) {
    return canonical(static_cast<T>(minimum) + static_cast<T>(unit) * static_cast<T>(code));
}

} // namespace qccl
