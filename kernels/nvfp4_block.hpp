// The arithmetic of `nvfp4`, defined once: 16 values share a scale of E4M3, and the blocks of a
// bucket share an fp32 base under which their scales fit. Scalar and portable, for the kernels of
// CPUs and GPUs, which decide where values, codes and scales lie in memory. WIRE.md describes the
// arithmetic in words.
#pragma once

#include "kernels/mx_element.hpp"

namespace qccl {

// What a bucket's scales are computed with. 0: all values of the bucket are zero or not finite.
struct Nvfp4Base {
    float wire = 0.0F;
    float inverse = 0.0F; // of 6 times the base, by which a block's largest value is divided
};

inline constexpr float nvfp4_largest_element = 6;

// Returns what an encoder needs of a base on the wire.
constexpr Nvfp4Base nvfp4_base_of(float wire) {
    if (wire == 0) return {};
    return {.wire = wire, .inverse = 1.0F / (nvfp4_largest_element * wire)};
}

// Computes the base of a bucket. `largest` is the bit pattern of the largest magnitude in those
// blocks of the bucket that are finite.
constexpr Nvfp4Base nvfp4_base(uint32_t largest) {
    constexpr float largest_scale = 448;
    // Between these bounds every scale times the base is a normal number, and no code decodes to an
    // infinity.
    constexpr float least = 0x1p-117F, most = 0x1.8p116F;
    if (largest == 0) return {};
    const float wanted = std::bit_cast<float>(largest) / (nvfp4_largest_element * largest_scale);
    return nvfp4_base_of(wanted < least ? least : wanted > most ? most : wanted);
}

struct Nvfp4Scale {
    uint8_t wire = 0;     // E4M3
    float inverse = 0.0F; // of the scale times the base; 0: every code is 0
};

// Computes the scale of a block. `largest` is the bit pattern of the largest magnitude in the
// block, or of NaN if there is one.
QCCL_ANYWHERE inline Nvfp4Scale nvfp4_scale(uint32_t largest, const Nvfp4Base &base,
                                            bool rounds_up) {
    if (largest >= float_infinity) return {.wire = E4m3::nan};
    const float wanted = std::bit_cast<float>(largest) * base.inverse;
    uint32_t code = element_code<E4m3>(wanted, {});
    if (rounds_up && widen<E4m3>(code) < wanted && code < E4m3::largest) code++;
    if (code == 0) return {};
    return {.wire = static_cast<uint8_t>(code), .inverse = 1.0F / (widen<E4m3>(code) * base.wire)};
}

// Encodes a value of a block that is finite.
QCCL_ANYWHERE inline uint32_t nvfp4_code(float x, const Nvfp4Scale &scale, Draw draw) {
    return scale.inverse != 0 ? element_code<E2m1>(x * scale.inverse, draw) : 0;
}

constexpr float nvfp4_value(uint32_t code, uint8_t scale, float base) {
    return canonical(widen<E2m1>(code) * (widen<E4m3>(scale) * base));
}

} // namespace qccl
