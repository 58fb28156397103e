// The elements of OCP's MX formats and of NVFP4: how a value rounds to their grid, which becomes
// coarser with every power of two. Scalar and portable, for the kernels of CPUs and GPUs.
#pragma once

#include "kernels/code_rounding.hpp"
#include "kernels/number.hpp"

#include <bit>
#include <cstdint>

namespace qccl {

// Like E4m3, but these formats have no infinity and no NaN: no magnitude is beyond the largest.
struct E2m3 {
    static constexpr int exponent_bits = 2, fraction_bits = 3;
    static constexpr uint32_t sign = 0x20, infinity = 0x20, nan = 0x20, largest = 0x1F;
};
struct E2m1 {
    static constexpr int exponent_bits = 2, fraction_bits = 1;
    static constexpr uint32_t sign = 0x8, infinity = 0x8, nan = 0x8, largest = 0x7;
};

template <class F> inline constexpr int element_bias = (1 << (F::exponent_bits - 1)) - 1;

// Rounds v to the grid of F and saturates. v is finite. The magnitude is rounded and the sign is
// kept, also if the result is zero.
template <class F> QCCL_ANYWHERE uint32_t element_code(float v, Draw draw) {
    constexpr uint32_t lowest = 128 - element_bias<F>; // float exponent of F's least normal number
    constexpr int32_t most = 2 << F::fraction_bits;
    const uint32_t pattern = std::bit_cast<uint32_t>(v), magnitude = pattern & 0x7FFFFFFFU;
    const uint32_t field = magnitude >> 23 > lowest ? magnitude >> 23 : lowest;
    // The grid has steps of 2^(field - 127 - fraction_bits). The product is exact.
    const float steps_in_one = std::bit_cast<float>((254 + F::fraction_bits - field) << 23);
    const float steps = std::bit_cast<float>(magnitude) * steps_in_one;
    // One step above the largest significand the code continues in the next power of two.
    const uint32_t code = ((field - lowest) << F::fraction_bits) +
                          static_cast<uint32_t>(round_code(steps, draw, 0, most));
    return ((pattern >> 31) != 0 ? F::sign : 0) | (code < F::largest ? code : F::largest);
}

} // namespace qccl
