// The arithmetic of `minmax`, defined once: a bucket shares its minimum and a unit, both fp32.
// Scalar and portable, for the kernels of CPUs and GPUs, which decide where values, codes and
// scales lie in memory. WIRE.md describes the arithmetic in words.
#pragma once

#include "kernels/code_rounding.hpp"
#include "kernels/number.hpp"

#include <cstdint>
#include <limits>

namespace qccl {

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

template <class T>
QCCL_ANYWHERE uint32_t bucket_code(T x, const BucketScale<T> &scale, unsigned bits, Draw draw) {
    if (!scale.has_codes) return 0;
    const T offset = x - static_cast<T>(scale.minimum);
    const auto highest = static_cast<int32_t>((1U << bits) - 1);
    return static_cast<uint32_t>(round_code(offset * scale.inverse, draw, 0, highest));
}

template <class T> QCCL_ANYWHERE T bucket_value(uint32_t code, float minimum, float unit) {
    return canonical(static_cast<T>(minimum) + static_cast<T>(unit) * static_cast<T>(code));
}

} // namespace qccl
