// The arithmetic of `onebit`, defined once: a bucket shares the mean of its values from zero up and
// the mean of its negative values. Scalar and portable, for the kernels of CPUs and GPUs, which
// decide where values, codes and means lie in memory. WIRE.md describes the arithmetic in words.
#pragma once

#include "kernels/number.hpp"

#include <cstdint>
#include <limits>

namespace qccl {

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

} // namespace qccl
