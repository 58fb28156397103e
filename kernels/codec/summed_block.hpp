// The arithmetic of the codecs whose scales come from sums over a bucket, `onebit` and `terngrad`,
// defined once, and the order in which a bucket's values are summed. A bucket of `onebit` shares
// the mean of its values from zero up and the mean of its negative values. With `terngrad` a value
// becomes plus or minus its bucket's scale, or zero, so that the result is right on average. Scalar
// and portable, for the kernels of CPUs and GPUs, which decide where values, codes, digits and
// scales lie in memory. WIRE.md describes the arithmetic in words.
//
// Each of 32 lanes sums every 32nd value, and then the lanes add up pairwise, so that a GPU's warp
// sums without waiting. The scalar reference calls pinned_sum; GPU kernels follow its order.
#pragma once

#include "kernels/codec/code_rounding.hpp"
#include "kernels/codec/number.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

namespace qccl {

// ---- Order of sums

inline constexpr unsigned sum_lanes = 32;

// Returns the sum of value(0), ..., value(count - 1) in fp32.
template <class Value> float pinned_sum(uint64_t count, Value &&value) {
    float sums[sum_lanes] = {};
    for (uint64_t i = 0; i < count; i++) sums[i % sum_lanes] += value(i);
    for (unsigned distance = sum_lanes / 2; distance != 0; distance /= 2)
        for (unsigned lane = 0; lane < distance; lane++) sums[lane] += sums[lane + distance];
    return sums[0];
}

// ---- onebit

// A sum that overflows is computed again from values scaled by this factor. That is exact but for
// values that underflow.
inline constexpr float onebit_lowered = 0x1p-32F;

// Returns the code of a value: the mean that the value goes into. -0 is not negative.
constexpr uint32_t onebit_code(float x) { return x < 0 ? 1 : 0; }

// Computes a mean. `sum` is finite, and is the sum of `count` values times `factor`, which is 1 or
// onebit_lowered.
constexpr float onebit_mean(float sum, uint64_t count, float factor) {
    constexpr float most = std::numeric_limits<float>::max();
    if (count == 0) return 0.0F;
    const float mean = sum / static_cast<float>(count) / factor;
    return mean > most ? most : mean < -most ? -most : mean;
}

constexpr float onebit_value(uint32_t code, float mean, float negative_mean) {
    return code != 0 ? negative_mean : mean;
}

// ---- terngrad

// Returns a power of two that scales the largest magnitude to 2 ... 4 (subnormal magnitudes nearly
// so), so that squares of scaled values neither overflow nor vanish. `largest` is the bit pattern
// of a finite magnitude.
constexpr float terngrad_lift(uint32_t largest) {
    const uint32_t field = largest >> 23 != 0 ? largest >> 23 : 1;
    return std::bit_cast<float>((255 - field) << 23);
}

// What digits are computed with. Without an inverse every digit is 0.
struct TerngradScale {
    float wire = 0.0F;
    float lift = 1.0F;
    float inverse = 0.0F; // of the lifted scale
};

// Computes the scale of a bucket of `count` values. `squares` is the pinned_sum of the lifted
// values' squares. `clip` is in thousandths of the deviation.
QCCL_ANYWHERE inline TerngradScale terngrad_scale(uint32_t largest, float squares, uint64_t count,
                                                  uint32_t clip) {
    if (largest >= float_infinity) return {.wire = std::bit_cast<float>(float_nan)};
    if (largest == 0) return {};
    TerngradScale scale{.lift = terngrad_lift(largest)};
    const float deviation = std::sqrt(squares / static_cast<float>(count));
    const float most = static_cast<float>(clip) / 1000.0F * deviation;
    const float lifted = std::bit_cast<float>(largest) * scale.lift;
    scale.wire = (lifted < most ? lifted : most) / scale.lift;
    if (scale.wire != 0) scale.inverse = 1.0F / (scale.wire * scale.lift);
    return scale;
}

// Returns 0 for zero, 1 for plus and 2 for minus the scale. x is finite if the scale has an
// inverse.
QCCL_ANYWHERE inline uint32_t terngrad_digit(float x, const TerngradScale &scale, Draw draw) {
    if (scale.inverse == 0) return 0;
    const float magnitude = x < 0 ? -x : x;
    const auto is_kept =
        static_cast<uint32_t>(round_code(magnitude * scale.lift * scale.inverse, draw, 0, 1));
    return x < 0 ? 2 * is_kept : is_kept;
}

constexpr float terngrad_value(uint32_t digit, float scale) {
    return canonical((digit == 0 ? 0.0F : digit == 1 ? 1.0F : -1.0F) * scale);
}

} // namespace qccl
