// How a value is rounded to a whole code, to the nearest or by a draw of noise. Scalar and
// portable, for CPUs and GPUs. Knows no codec.
#pragma once

#include "kernels/port.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace qccl {

// A draw of noise, k of u = k / 2^16; `nearest` stands for rounding without one.
struct Draw {
    static constexpr uint32_t nearest = ~0U;
    uint32_t k = nearest;
};

// v rounded to an integer of [lowest, highest], both below 2^21 in magnitude. v may be infinite,
// never NaN.
template <class T>
QCCL_ANYWHERE int32_t round_code(T v, Draw draw, int32_t lowest, int32_t highest) {
    const T low = static_cast<T>(lowest), high = static_cast<T>(highest);
    if (draw.k != Draw::nearest) {
        const T down = std::floor(v + static_cast<T>(draw.k) / T(65536));
        return static_cast<int32_t>(down < low ? low : down > high ? high : down);
    }
    // From here up to the double of it a number's last bit is 1: the adder rounds to nearest even,
    // and the low bits are the integer. Clamped before, with the same result: bounds are integers.
    using Bits = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
    constexpr T grid = sizeof(T) == 8 ? T(0x1.8p52) : T(0x1.8p23);
    const T clamped = v < low ? low : v > high ? high : v;
    return static_cast<int32_t>(std::bit_cast<Bits>(clamped + grid) - std::bit_cast<Bits>(grid));
}

} // namespace qccl
