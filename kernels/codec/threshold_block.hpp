// The arithmetic of `tbq` (N. Strom, Interspeech 2015), defined once: a value that reaches the
// threshold becomes the threshold with its sign, all others zero. Each value has its code by
// itself. Scalar and portable, for the kernels of CPUs and GPUs. WIRE.md describes it in words.
#pragma once

#include "kernels/codec/number.hpp"

#include <bit>
#include <cstdint>

namespace qccl {

// The codes 0, 1 and 3 stand for 0, 1 and -1 times the threshold.
inline constexpr uint32_t tbq_nan_code = 2;

constexpr uint32_t tbq_code(float x, float threshold) {
    if (!is_finite(x)) return tbq_nan_code;
    return x >= threshold ? 1 : x <= -threshold ? 3 : 0;
}
constexpr float tbq_value(uint32_t code, float threshold) {
    if (code == tbq_nan_code) return std::bit_cast<float>(float_nan);
    return code == 0 ? 0.0F : code == 1 ? threshold : -threshold;
}

} // namespace qccl
