// How a value is rounded to a whole code, to the nearest or by a draw of noise. Scalar and
// portable, for CPUs and GPUs. Knows no codec.
#pragma once

#include <cmath>
#include <cstdint>

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

} // namespace qccl
