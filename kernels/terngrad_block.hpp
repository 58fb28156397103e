// The arithmetic of `terngrad`, defined once: a value becomes plus or minus its bucket's scale, or
// zero, so that the result is right on average. Scalar and portable, for the kernels of CPUs and
// GPUs, which decide where values, digits and scales lie in memory. WIRE.md describes the
// arithmetic in words.
#pragma once

#include "kernels/code_rounding.hpp"
#include "kernels/number.hpp"

#include <cmath>
#include <cstdint>

namespace qccl {

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
