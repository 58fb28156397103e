// The arithmetic of the MX codecs, defined once: a block of 32 values shares a power of two, E8M0,
// and its codes are small floats. Scalar and portable, for the kernels of CPUs and GPUs, which
// decide where values, codes and scales lie in memory. WIRE.md describes the arithmetic in words.
#pragma once

#include "kernels/mx_element.hpp"

namespace qccl {

// The scale of a block: 2^(wire - 127), or NaN. If has_codes is false (a block of zeros, or one
// that is not finite), every code is 0.
struct MxScale {
    static constexpr uint8_t nan = 0xFF;
    uint8_t wire = 0;
    bool has_codes = false;
    float inverse = 0.0F;
};

// Exponent of the largest element of F. A scale above 2^(127 - exponent) is never used, so that
// every decoded value is finite.
template <class F>
inline constexpr int
    element_exponent = static_cast<int>(F::largest >> F::fraction_bits) - element_bias<F>;

// Computes the scale of a block. `largest` is the bit pattern of the largest magnitude in the
// block, or of NaN if there is one. With rounds_up the result is the least scale that the block's
// values fit under; otherwise it is OCP's scale, under which the largest values may saturate.
template <class F> constexpr MxScale mx_scale(uint32_t largest, bool rounds_up) {
    constexpr uint32_t fraction_mask = 0x7FFFFF;
    constexpr uint32_t element_fraction = F::largest << (23 - F::fraction_bits) & fraction_mask;
    constexpr int most = 254 - element_exponent<F>;
    if (largest >= float_infinity) return {.wire = MxScale::nan};
    if (largest == 0) return {};
    const bool is_beyond = (largest & fraction_mask) > element_fraction;
    const int wanted =
        static_cast<int>(largest >> 23) - element_exponent<F> + (rounds_up && is_beyond ? 1 : 0);
    MxScale scale;
    scale.wire = static_cast<uint8_t>(wanted < 0 ? 0 : wanted > most ? most : wanted);
    scale.has_codes = true;
    scale.inverse = std::bit_cast<float>((254U - scale.wire) << 23);
    return scale;
}

template <class F> QCCL_ANYWHERE uint32_t mx_code(float x, const MxScale &scale, Draw draw) {
    return scale.has_codes ? element_code<F>(x * scale.inverse, draw) : 0;
}

constexpr float mx_power(uint8_t wire) {
    constexpr uint32_t lowest = 0x00400000; // 2^-127, subnormal
    const uint32_t pattern = wire == 0 ? lowest : uint32_t{wire} << 23;
    if (wire == MxScale::nan) return std::bit_cast<float>(float_nan);
    return std::bit_cast<float>(pattern);
}

template <class F> constexpr float mx_value(uint32_t code, uint8_t wire) {
    return canonical(widen<F>(code) * mx_power(wire));
}

} // namespace qccl
