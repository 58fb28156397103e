// Rounds a value to an integer code, either to the nearest code or stochastically with a noise
// draw. Scalar and portable, for the kernels of CPUs and GPUs.
#pragma once

#include "kernels/port.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace qccl {

// A noise draw u = k / 2^16. `nearest` means rounding to nearest without a draw.
struct Draw {
    static constexpr uint32_t nearest = ~0U;
    uint32_t k = nearest;
};

// Rounds v to an integer in [lowest, highest]. Both bounds are below 2^21 in magnitude. v may be
// infinite but must not be NaN.
template <class T>
QCCL_ANYWHERE int32_t round_code(T v, Draw draw, int32_t lowest, int32_t highest) {
    const T low = static_cast<T>(lowest), high = static_cast<T>(highest);
    if (draw.k != Draw::nearest) {
        const T down = std::floor(v + static_cast<T>(draw.k) / T(65536));
        return static_cast<int32_t>(down < low ? low : down > high ? high : down);
    }
    // From `grid` up to twice that number, a float's last bit is worth 1. The addition therefore
    // rounds to nearest even, and the low bits of the sum are the integer. Clamping before the
    // addition gives the same result because the bounds are integers.
    using Bits = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
    constexpr T grid = sizeof(T) == 8 ? T(0x1.8p52) : T(0x1.8p23);
    const T clamped = v < low ? low : v > high ? high : v;
    return static_cast<int32_t>(std::bit_cast<Bits>(clamped + grid) - std::bit_cast<Bits>(grid));
}

} // namespace qccl
