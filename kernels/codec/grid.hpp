// The arithmetic of the codec `bound`, which rounds values to a grid: multiples of one step, close
// enough for the bound. A value that has no multiple within the bound stays as it is, so the bound
// holds for every value. A pointwise bound rounds values to so few bits of fraction. Scalar and
// portable, for the kernels of CPUs and GPUs. WIRE.md describes the arithmetic in words, and what
// packing makes of the multiples.
#pragma once

#include "codec/chunk.hpp"
#include "codec/codec.hpp"
#include "kernels/codec/code_rounding.hpp"
#include "kernels/codec/number.hpp"
#include "kernels/codec/uniform_block.hpp"

#include <bit>
#include <cstdint>
#include <limits>

namespace qccl {

// Multiples up to this number have codes, of 16 bits at most.
inline constexpr int32_t largest_multiple = 32767;

// Returns the step for a bound, or 0 if the bound is none for which fp32 has a step and its
// reciprocal. A step is less than twice the bound by 1/256 to 1/85 of it, and has 8 significant
// bits, so that multiples are exact: what rounding adds to half a step stays below the bound.
constexpr float grid_step(float bound) {
    if (!(bound >= 0x1p-120F && bound <= 0x1p120F)) return 0.0F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(bound * 1.9921875F) & 0xFFFF0000U);
}

// What an encoder computes with. T is float, or double for fp64 tensors. Without a grid, all are 0.
template <class T> struct ValueGrid {
    T step = 0, inverse = 0;
    T distance = 0; // of a value from its multiple, at most

    constexpr explicit ValueGrid(float of_step)
        : step(static_cast<T>(of_step)), inverse(of_step == 0 ? T(0) : T(1) / step),
          distance(step * T(0.501953125)) {} // 257/512, exactly
    QCCL_ANYWHERE constexpr T multiple(T x) const {
        // From `whole` up to its double a number's last bit is worth 1, so the sum is rounded to
        // nearest even. Larger numbers are no multiples that have codes.
        constexpr T whole = sizeof(T) == 8 ? T(0x1.8p52) : T(0x1.8p23);
        return (x * inverse + whole) - whole;
    }
    QCCL_ANYWHERE constexpr T rounded(T x) const {
        const T q = multiple(x), y = q * step, d = x - y;
        const bool is_near = q <= T(largest_multiple) && q >= T(-largest_multiple) &&
                             d <= distance && d >= -distance;
        return is_near ? y : canonical(x);
    }
};

// The step of a chunk whose values lie from `low` to `high`. If they are not all finite, or the
// range is none that fp32 holds, there is no grid.
template <class T>
QCCL_ANYWHERE float range_step(T low, T high, bool are_finite, float relative_bound) {
    const float narrow_low = static_cast<float>(low), narrow_high = static_cast<float>(high);
    if (!are_finite || !is_finite(narrow_low) || !is_finite(narrow_high)) return 0.0F;
    return grid_step(relative_bound * bucket_unit(low, high, 1));
}

// ---- Pointwise bounds

// Rounds the fraction of a normal number to `kept` bits, so that it changes by less than 2^-kept-1
// of itself. T is float, or double for fp64 tensors. Zeros, subnormal numbers, infinities and NaN
// stay as they are, and what would become an infinity.
template <class T> struct PointGrid {
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    static constexpr int fraction_bits = std::numeric_limits<T>::digits - 1;
    static constexpr Bits infinity = std::bit_cast<Bits>(std::numeric_limits<T>::infinity()),
                          least = Bits{1} << fraction_bits, magnitude = ~Bits{0} >> 1;
    int shift; // of the dropped bits

    constexpr explicit PointGrid(int kept) : shift(fraction_bits - kept) {}
    // Numbers of the grid are zero, and those that have a place: their magnitude's upper bits.
    constexpr Bits least_place() const { return least >> shift; }
    constexpr Bits last_place() const { return (infinity >> shift) - 1; }
    QCCL_ANYWHERE constexpr T rounded(T x) const {
        const Bits bits = std::bit_cast<Bits>(x), number = bits & magnitude;
        const Bits half = (Bits{1} << (shift - 1)) - 1 + (number >> shift & 1); // ties to even
        const Bits place = (number + half) >> shift;
        if (number < least || number >= infinity || place > last_place()) return canonical(x);
        return std::bit_cast<T>(place << shift | (bits & ~magnitude));
    }
};

// ---- Packed codes

// A code is a multiple with its sign in the lowest bit: 0, -1, 1, -2, 2, ... are 0, 1, 2, 3, 4, ...
constexpr uint32_t code_of_multiple(int32_t q) {
    return static_cast<uint32_t>(q) << 1 ^ static_cast<uint32_t>(q >> 31);
}
constexpr int32_t multiple_of_code(uint32_t code) {
    return static_cast<int32_t>(code >> 1) ^ -static_cast<int32_t>(code & 1);
}

// Values of a block of packed codes; a block's width is the number of bits that its codes have, or
// raw_width if its values travel as they are.
inline constexpr uint32_t grid_block = 32, most_grid_width = 16;
inline constexpr uint8_t raw_width = 255;
// With entropy coding, codes of blocks up to this width are symbols, and their width counts as 0.
inline constexpr uint32_t most_symbol_width = 8;

// With a pointwise bound a body begins with a word, the least place of the block's numbers, and the
// code of a number is the distance from the place before that, with the sign in the lowest bit; the
// distance of zeros is 0.
constexpr size_t body_bytes(uint8_t width, size_t value_bytes, bool is_pointwise) {
    const size_t base = is_pointwise ? sizeof(uint32_t) : 0;
    return width == raw_width ? grid_block * value_bytes : base + grid_block / 8 * width;
}

} // namespace qccl
