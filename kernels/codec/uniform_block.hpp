// The arithmetic of the codecs with evenly spaced codes, `int b` and `minmax`, defined once. A
// block of `int` shares a scale of 16 bits, and its extreme value takes the lowest code. A bucket
// of `minmax` shares its minimum and a unit, both fp32. Scalar and portable, for the kernels of
// CPUs and GPUs, which decide where values, codes and scales lie in memory. WIRE.md describes the
// arithmetic in words.
#pragma once

#include "kernels/codec/code_rounding.hpp"
#include "kernels/codec/number.hpp"

#include <cstdint>
#include <limits>

namespace qccl {

// ---- int b

// What a block's codes are computed with. If has_codes is false (a block of zeros, or one that is
// not finite), every code is 0.
struct BlockScale {
    uint16_t wire = 0; // bf16
    bool has_codes = false;
    float lift = 1.0F;    // 2^64 if the scale is subnormal, so that its reciprocal is finite
    float inverse = 0.0F; // of the lifted scale
};

// Returns the one of two finite values with the larger magnitude; of equal magnitudes the positive
// one.
constexpr float extreme_of(float a, float b) {
    const float magnitude_a = a < 0 ? -a : a, magnitude_b = b < 0 ? -b : b;
    if (magnitude_a != magnitude_b) return magnitude_a > magnitude_b ? a : b;
    return a < 0 ? b : a;
}

// Returns -extreme / 2^(bits - 1) as bf16. The exact quotient is rounded away from zero, or toward
// zero if the lowest code would otherwise decode to an infinity. `extreme` is finite and not zero.
constexpr uint16_t round_scale(float extreme, unsigned bits) {
    const uint32_t pattern = std::bit_cast<uint32_t>(extreme);
    const uint32_t fraction = pattern & 0x7FFFFF, field = pattern >> 23 & 0xFF;
    const uint32_t significand = field != 0 ? fraction | 0x800000 : fraction;
    const int exponent = static_cast<int>(field != 0 ? field : 1) - static_cast<int>(bits - 1);
    const int kept = exponent > 1 ? exponent : 1; // subnormal below exponent 1
    const int shift = 16 + kept - exponent; // 16: a bf16 has 16 fraction bits less than a float
    const uint32_t rounded = (significand + (1U << shift) - 1) >> shift;
    const uint32_t encoded = (static_cast<uint32_t>(kept - 1) << 7) + rounded;
    const uint32_t too_large = (255 - (bits - 1)) << 7; // 2^(128 - (bits - 1))
    const uint32_t sign = extreme > 0 ? 0x8000U : 0U;
    return static_cast<uint16_t>(sign | (encoded < too_large ? encoded : too_large - 1));
}

// Returns what an encoder needs of a scale on the wire.
constexpr BlockScale block_scale(uint16_t wire) {
    constexpr uint32_t smallest_normal = 0x0080, magnitude = 0x7FFF;
    BlockScale scale{.wire = wire};
    if (wire == 0 || wire == Bfloat::nan) return scale;
    scale.has_codes = true;
    if ((wire & magnitude) < smallest_normal) scale.lift = 0x1p64F;
    scale.inverse = 1.0F / (widen_number<Bfloat>(wire) * scale.lift);
    return scale;
}

// Computes the scale of a block. `is_finite` is true if all values of the block are finite;
// `extreme` is then extreme_of of all of them.
constexpr BlockScale block_scale(float extreme, bool is_finite, unsigned bits) {
    if (!is_finite) return block_scale(static_cast<uint16_t>(Bfloat::nan));
    return block_scale(extreme == 0 ? uint16_t{0} : round_scale(extreme, bits));
}

// Dither gives the code -bound no noise, so that the extreme value, which lies there, keeps the
// error of rounding to the nearest. Returns whether v takes that code: in the last step the odds
// are those that keep the mean of the decoded values at v.
QCCL_ANYWHERE inline bool takes_last_code(float v, float shift, int32_t bound) {
    const float rest = 1.0F - shift, above = v + static_cast<float>(bound);
    return above + above < rest * rest - 0.25F;
}

// Encodes a value of a block that has codes. The low 16 bits of the result are the code's.
QCCL_ANYWHERE inline uint32_t block_bits(float x, const BlockScale &scale, unsigned bits,
                                         Draw draw) {
    const int32_t bound = 1 << (bits - 1);
    const float v = x * scale.lift * scale.inverse;
    const bool leaves_last =
        draw.is_dither && !takes_last_code(v, dither_shift<float>(draw.k), bound);
    return round_bits(v, draw, leaves_last ? 1 - bound : -bound, bound - 1);
}
QCCL_ANYWHERE inline int32_t block_code(float x, const BlockScale &scale, unsigned bits,
                                        Draw draw) {
    return scale.has_codes ? static_cast<int16_t>(block_bits(x, scale, bits, draw)) : 0;
}

// Decodes a code, except that a NaN scale gives some NaN.
constexpr float block_product(float code, float scale) { return code * scale; }
// Decodes a code. NaN is made canonical because not every processor keeps it so.
constexpr float block_value(int32_t code, float scale) {
    return canonical(block_product(static_cast<float>(code), scale));
}

// The same for a code of which the noise `shift` is subtracted first, unless it is the last one.
// The zero makes +0 of -0.
constexpr float block_dithered(float code, unsigned bits, float shift, float scale) {
    const bool is_last = code == -static_cast<float>(1U << (bits - 1));
    return (code - (is_last ? 0.0F : shift)) * scale + 0.0F;
}

// ---- minmax

// T is float, or double for fp64 tensors.
template <class T> struct BucketScale {
    float minimum = 0, unit = 0; // as on the wire
    bool has_codes = false;
    T inverse = 0; // of the unit
};

// Returns (maximum - minimum) / (2^bits - 1) as fp32; +0 if that is not a normal number.
QCCL_ANYWHERE inline float bucket_unit(float minimum, float maximum, unsigned bits) {
    const float steps = static_cast<float>((1U << bits) - 1), range = maximum - minimum;
    constexpr float largest = std::numeric_limits<float>::max(),
                    smallest = std::numeric_limits<float>::min();
    const float unit = range <= largest ? range / steps : (maximum / 2 - minimum / 2) / steps * 2;
    return unit < smallest ? 0.0F : unit > largest ? largest : unit;
}
QCCL_ANYWHERE inline float bucket_unit(double minimum, double maximum, unsigned bits) {
    constexpr float largest = std::numeric_limits<float>::max(),
                    smallest = std::numeric_limits<float>::min();
    const float unit =
        static_cast<float>((maximum - minimum) / static_cast<double>((1U << bits) - 1));
    return unit < smallest ? 0.0F : unit > largest ? largest : unit;
}

// Returns what an encoder needs of a scale on the wire.
template <class T> QCCL_ANYWHERE BucketScale<T> bucket_scale(float minimum, float unit) {
    BucketScale<T> scale{.minimum = minimum, .unit = unit};
    if (!(unit > 0)) return scale;
    scale.has_codes = true;
    scale.inverse = T(1) / static_cast<T>(unit);
    return scale;
}

// Computes the scale of a bucket from its extremes. A bucket with a value that is not finite, or
// that fp32 cannot hold, has a NaN scale.
template <class T>
QCCL_ANYWHERE BucketScale<T> bucket_scale(T minimum, T maximum, bool are_finite, unsigned bits) {
    const float low = static_cast<float>(minimum), high = static_cast<float>(maximum);
    if (!are_finite || !is_finite(low) || !is_finite(high)) {
        const float nan = std::bit_cast<float>(float_nan);
        return bucket_scale<T>(nan, nan);
    }
    return bucket_scale<T>(low + 0.0F, bucket_unit(minimum, maximum, bits)); // -0 becomes +0
}

// Encodes a value of a bucket that has codes. The low 16 bits of the result are the code's.
template <class T>
QCCL_ANYWHERE uint32_t bucket_bits(T x, const BucketScale<T> &scale, unsigned bits, Draw draw) {
    const T offset = x - static_cast<T>(scale.minimum);
    const auto highest = static_cast<int32_t>((1U << bits) - 1);
    return round_bits(offset * scale.inverse, draw, 0, highest);
}
template <class T>
QCCL_ANYWHERE uint32_t bucket_code(T x, const BucketScale<T> &scale, unsigned bits, Draw draw) {
    return scale.has_codes ? bucket_bits(x, scale, bits, draw) & 0xFFFF : 0;
}

// Decodes a code, except that a NaN scale gives some NaN.
template <class T> QCCL_ANYWHERE T bucket_point(float code, float minimum, float unit) {
    return static_cast<T>(minimum) + static_cast<T>(unit) * static_cast<T>(code);
}
template <class T> QCCL_ANYWHERE T bucket_dithered(float code, T shift, float minimum, float unit) {
    return static_cast<T>(minimum) + static_cast<T>(unit) * (static_cast<T>(code) - shift);
}
template <class T> QCCL_ANYWHERE T bucket_value(uint32_t code, float minimum, float unit) {
    return canonical(bucket_point<T>(static_cast<float>(code), minimum, unit));
}

} // namespace qccl
