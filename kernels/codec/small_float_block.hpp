// The arithmetic of the codecs whose codes are small floats, the MX codecs, `nvfp4` and fp8 with a
// block, defined once. The elements of OCP's MX formats and of NVFP4 round to a grid that becomes
// coarser with every power of two. In MX a block of 32 values shares a power of two, E8M0. In
// `nvfp4` 16 values share a scale of E4M3, and the blocks of a bucket share an fp32 base under
// which their scales fit. fp8 with a block has a bf16 for each block, under which the largest value
// becomes the largest number of the format or little less. Scalar and portable, for the kernels of
// CPUs and GPUs, which decide where values, codes and scales lie in memory. WIRE.md describes the
// arithmetic in words.
#pragma once

#include "codec/chunk.hpp"
#include "codec/codec.hpp"
#include "kernels/codec/code_rounding.hpp"
#include "kernels/codec/number.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace qccl {

// ---- Elements

// Like E4m3, but these formats have no infinity and no NaN: no magnitude is beyond the largest.
struct E2m3 {
    static constexpr int exponent_bits = 2, fraction_bits = 3;
    static constexpr uint32_t sign = 0x20, infinity = 0x20, nan = 0x20, largest = 0x1F;
};
struct E2m1 {
    static constexpr int exponent_bits = 2, fraction_bits = 1;
    static constexpr uint32_t sign = 0x8, infinity = 0x8, nan = 0x8, largest = 0x7;
};

// Calls `call` with a value of the format of an MX codec's elements.
template <class Call> void with_element(const Codec &codec, Call &&call) {
    const FloatFormat &element = codec.row().element;
    if (element == e4m3_element) return call(E4m3{});
    if (element == e2m3_element) return call(E2m3{});
    call(E2m1{});
}
static_assert(std::ranges::all_of(codec_table,
                                  [](const CodecRow &row) {
                                      return row.kind != CodecKind::mx ||
                                             row.element == e4m3_element ||
                                             row.element == e2m3_element ||
                                             row.element == e2m1_element;
                                  }),
              "with_element has each element's format");

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

// ---- MX

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

// ---- fp8 with a block

// Calls `call` with a value of the codec's format.
template <class Call> QCCL_ANYWHERE void with_fp8(CodecId codec, Call &&call) {
    if (codec == CodecId::fp8e4m3) return call(E4m3{});
    call(E5m2{});
}

struct Fp8Scale {
    uint16_t wire = 0; // bf16
    bool has_codes = false;
    float inverse = 0.0F;
};

// Computes the scale of a block. `largest` is the bit pattern of the largest magnitude in the
// block, or of NaN if there is one. The scale is rounded up, so that hardly a value saturates.
template <class F> QCCL_ANYWHERE Fp8Scale fp8_scale(uint32_t largest) {
    constexpr float share = 1.0F / largest_number<F>, least = 0x1p-126F;
    constexpr uint32_t most = largest_scale_bits(element_exponent<F>);
    if (largest >= float_infinity) return {.wire = Bfloat::nan};
    if (largest == 0) return {};
    const float wanted = std::bit_cast<float>(largest) * share;
    const uint32_t rounded =
        (std::bit_cast<uint32_t>(wanted < least ? least : wanted) + 0xFFFF) >> 16;
    const uint32_t wire = rounded < most ? rounded : most;
    return {.wire = static_cast<uint16_t>(wire),
            .has_codes = true,
            .inverse = 1.0F / widen_number<Bfloat>(wire)};
}

template <class F> QCCL_ANYWHERE uint32_t fp8_code(float x, const Fp8Scale &scale, Draw draw) {
    return scale.has_codes ? element_code<F>(x * scale.inverse, draw) : 0;
}

template <class F> constexpr float fp8_value(uint32_t code, uint16_t wire) {
    return canonical(widen<F>(code) * widen<Bfloat>(wire));
}

// ---- nvfp4

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
