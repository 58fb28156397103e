// The arithmetic of `onebit`, once: a bucket shares the mean of its values from zero up and that of
// its negative ones. Scalar and portable, for CPUs and GPUs; WIRE.md says it in words. Knows no
// memory: where values, codes and means lie is the kernels' business.
#pragma once

#include "kernels/number.hpp"

#include <cstdint>
#include <limits>

namespace qccl {

// Sums that overflow are made again of values this much smaller, which is exact but for what
// underflows beside them.
inline constexpr float onebit_lowered = 0x1p-32F;

// Which of the two means a value goes into, and its code. -0 is none of the negative ones.
constexpr uint32_t onebit_code(float x) { return x < 0 ? 1 : 0; }

// `sum` is of `count` values times `factor`, 1 or onebit_lowered, and finite.
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
