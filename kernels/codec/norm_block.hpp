// The arithmetic of `norm`, defined once: QSGD (Alistarh et al., NIPS'17) and NUQSGD
// (Ramezani-Kebrya et al., JMLR'21). The values of a bucket share a norm, and a code is a sign and
// a level: a multiple of a step, or zero or a power of two, of the norm. Scalar and portable, for
// the kernels of CPUs and GPUs, which decide where values, codes and norms lie in memory, and which
// sum squares in the order of summed_block.hpp. WIRE.md describes the arithmetic in words.
#pragma once

#include "codec/chunk.hpp"
#include "kernels/codec/code_rounding.hpp"
#include "kernels/codec/number.hpp"
#include "kernels/codec/summed_block.hpp"

#include <cmath>
#include <cstdint>
#include <limits>

namespace qccl {

// ---- Norms

// Whether a sum of squares is too small or too large to be exact: squares may have vanished or
// overflowed, so it is computed again from values times norm_lift. True for NaN.
constexpr bool needs_lift(float squares) {
    constexpr float least = 0x1p-64F, most = std::numeric_limits<float>::max();
    return !(squares >= least && squares <= most);
}

// Returns the factor of the second sum; `largest` is the bit pattern of the largest magnitude.
constexpr float norm_lift(uint32_t largest) { return terngrad_lift(largest); }

// Returns the root of a sum of squares of values times `lift`.
QCCL_ANYWHERE inline float norm_of_squares(float squares, float lift) {
    return std::sqrt(squares) / lift;
}

// The parameters of the codec that the arithmetic of a value needs.
struct NormGrid {
    bool is_uniform = true;
    uint32_t levels = 1; // above zero

    constexpr NormGrid(bool uniform, uint8_t bits)
        : is_uniform(uniform), levels(norm_levels(bits)) {}
    constexpr explicit NormGrid(const Codec &codec)
        : NormGrid(codec.levels == Levels::uniform, codec.bits) {}

    // Returns what a decoder multiplies by a code or by a power of two.
    constexpr float factor(float norm) const {
        return is_uniform ? norm / static_cast<float>(levels) : norm;
    }
    // Returns the norm as it is stored. `largest` is the bit pattern of the largest magnitude.
    constexpr float stored(float norm, uint32_t largest) const {
        constexpr float most = std::bit_cast<float>(largest_norm_bits);
        if (largest >= float_infinity) return std::bit_cast<float>(float_nan);
        const float least = 0x1p-126F * static_cast<float>(is_uniform ? levels : 1);
        return norm < least ? 0.0F : norm > most ? most : norm;
    }
};

// What codes are computed with. Without codes every code is 0.
struct NormScale {
    bool has_codes = false;
    float inverse = 0.0F; // of the factor
};
constexpr NormScale norm_scale(float stored, const NormGrid &grid) {
    if (!(stored > 0)) return {};
    return {true, 1.0F / grid.factor(stored)};
}

// ---- Codes

// Returns the code of the power of two that v is rounded to; `levels` of them are above zero.
QCCL_ANYWHERE inline int32_t power_code(float v, uint32_t levels, Draw draw) {
    const uint32_t pattern = std::bit_cast<uint32_t>(v) & 0x7FFFFFFF, lowest = 128 - levels;
    const uint32_t field = pattern >> 23 > lowest ? pattern >> 23 : lowest;
    // A power of two below the value, or the lowest level, is one step.
    const float steps = std::bit_cast<float>(pattern) * std::bit_cast<float>((254 - field) << 23);
    const uint32_t level = field - lowest + static_cast<uint32_t>(round_code(steps, draw, 0, 2));
    const auto number = static_cast<int32_t>(level < levels ? level : levels);
    return v < 0 ? -number : number;
}

// Encodes a value of a bucket that has codes. The low 16 bits of the result are the code's.
QCCL_ANYWHERE inline uint32_t norm_bits(float x, const NormScale &scale, const NormGrid &grid,
                                        Draw draw) {
    const float v = x * scale.inverse;
    const auto most = static_cast<int32_t>(grid.levels);
    if (grid.is_uniform) return round_bits(v, draw, -most, most);
    return static_cast<uint32_t>(power_code(v, grid.levels, draw));
}
QCCL_ANYWHERE inline int32_t norm_code(float x, const NormScale &scale, const NormGrid &grid,
                                       Draw draw) {
    return scale.has_codes ? static_cast<int16_t>(norm_bits(x, scale, grid, draw)) : 0;
}

// ---- Values

// Returns the share of the norm that the code of a power of two stands for.
constexpr float power_of_code(int32_t code, uint32_t levels) {
    const auto level = static_cast<uint32_t>(code < 0 ? -code : code);
    const uint32_t power = level == 0 ? 0 : (level + 127 - levels) << 23;
    return std::bit_cast<float>(power | (code < 0 ? 0x80000000U : 0U));
}

// Decodes a code, except that a NaN norm gives some NaN. `factor` is grid.factor of the norm.
constexpr float norm_product(int32_t code, float factor, const NormGrid &grid) {
    return (grid.is_uniform ? static_cast<float>(code) : power_of_code(code, grid.levels)) * factor;
}
constexpr float norm_value(int32_t code, float factor, const NormGrid &grid) {
    return canonical(norm_product(code, factor, grid));
}

} // namespace qccl
