// Rounds a value to an integer code, either to the nearest code or stochastically with a noise
// draw, and generates the draws: Philox4x32-7 (Salmon et al., SC'11). The generator is
// counter-based, so that a draw depends on its position alone and cutting a chunk changes nothing.
// Scalar and portable, for the kernels of CPUs and GPUs.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

// Marks functions that host and device share.
#if defined(__CUDACC__) || defined(__HIP__)
#define QCCL_ANYWHERE __host__ __device__
#else
#define QCCL_ANYWHERE
#endif

namespace qccl {

// ---- Arithmetic that has an instruction. If the operands are zeros of different signs, either may
// be returned. If the first operand is NaN, the second is returned.

QCCL_ANYWHERE inline float least(float a, float b) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
    return fminf(a, b);
#else
    return a < b ? a : b;
#endif
}
QCCL_ANYWHERE inline float greatest(float a, float b) {
#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
    return fmaxf(a, b);
#else
    return a > b ? a : b;
#endif
}
QCCL_ANYWHERE inline double least(double a, double b) { return a < b ? a : b; }
QCCL_ANYWHERE inline double greatest(double a, double b) { return a > b ? a : b; }

// ---- Noise draws

// One draw of 16 bits per element, eight draws per block of the generator.
inline constexpr uint32_t philox_draws = 8;

inline constexpr uint32_t philox_multiplier_0 = 0xD2511F53,
                          philox_multiplier_1 = 0xCD9E8D57; // Salmon et al., table 2
inline constexpr uint32_t philox_weyl_0 = 0x9E3779B9,
                          philox_weyl_1 = 0xBB67AE85; // golden ratio; sqrt(3) - 1
inline constexpr int philox_rounds = 7;

constexpr std::array<uint32_t, 4> philox4x32_7(std::array<uint32_t, 4> counter,
                                               std::array<uint32_t, 2> key) {
    for (int i = 0; i < philox_rounds; i++) {
        const uint64_t product_0 = uint64_t{philox_multiplier_0} * counter[0];
        const uint64_t product_1 = uint64_t{philox_multiplier_1} * counter[2];
        counter = {static_cast<uint32_t>(product_1 >> 32) ^ counter[1] ^ key[0],
                   static_cast<uint32_t>(product_1),
                   static_cast<uint32_t>(product_0 >> 32) ^ counter[3] ^ key[1],
                   static_cast<uint32_t>(product_0)};
        key = {key[0] + philox_weyl_0, key[1] + philox_weyl_1};
    }
    return counter;
}

// Returns the generator's block that serves elements 8 * block ... 8 * block + 7.
constexpr std::array<uint32_t, 4> noise_block(uint64_t key, uint64_t call, uint64_t block) {
    return philox4x32_7({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                         static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32)},
                        {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
}

// Returns k of u = k / 2^16 for the `number`th element that a block serves. A GPU's registers
// cannot be indexed, so the word is selected among the four.
constexpr uint32_t draw_of(const std::array<uint32_t, 4> &block, uint32_t number) {
    const uint32_t low = number < 2 ? block[0] : block[1], high = number < 6 ? block[2] : block[3];
    return (number < 4 ? low : high) >> (number % 2 * 16) & 0xFFFF;
}

// Returns the draw of the element at `index` of the caller's tensor.
constexpr uint32_t noise_draw(uint64_t key, uint64_t call, uint64_t index) {
    return draw_of(noise_block(key, call, index / philox_draws),
                   static_cast<uint32_t>(index % philox_draws));
}

// ---- Rounding to codes

// A noise draw u = k / 2^16. `nearest` means rounding to nearest without a draw. Dither rounds to
// nearest what u - 1/2 has been added to.
struct Draw {
    static constexpr uint32_t nearest = ~0U;
    uint32_t k = nearest;
    bool is_dither = false;
};

// Returns u - 1/2, exactly.
template <class T> constexpr T dither_shift(uint32_t k) {
    return static_cast<T>(k) / T(65536) - T(0.5);
}

// Rounds v to an integer in [lowest, highest]; both bounds are below 2^15 in magnitude. Returns a
// number whose low 16 bits are the integer's. v may be infinite; NaN gives one of the bounds.
template <class T>
QCCL_ANYWHERE uint32_t round_bits(T v, Draw draw, int32_t lowest, int32_t highest) {
    const T low = static_cast<T>(lowest), high = static_cast<T>(highest);
    if (draw.is_dither)
        v = v + dither_shift<T>(draw.k);
    else if (draw.k != Draw::nearest)
        v = std::floor(v + static_cast<T>(draw.k) / T(65536));
    // The addition below rounds to nearest; a stochastic value is an integer already. From `grid`
    // up to twice that number, a float's last bit is worth 1. The addition therefore rounds to
    // nearest even, and the low bits of the sum are the integer. Clamping before the addition gives
    // the same result because the bounds are integers.
    using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    constexpr T grid = sizeof(T) == 8 ? T(0x1.8p52) : T(0x1.8p23);
    return static_cast<uint32_t>(std::bit_cast<Bits>(least(greatest(v, low), high) + grid));
}

// The same as a number.
template <class T>
QCCL_ANYWHERE int32_t round_code(T v, Draw draw, int32_t lowest, int32_t highest) {
    constexpr uint32_t grid = sizeof(T) == 8 ? 0 : 0x4B400000;
    return static_cast<int32_t>(round_bits(v, draw, lowest, highest) - grid);
}

} // namespace qccl
