// The randomised Hadamard transform of the key `rotate`: each of d values gets a sign, and
// butterflies mix the d values, so that every one of them has a part of all. Large values are
// spread, and what is quantised is nearly Gaussian (the fast transform of Walsh and Hadamard, with
// signs as by Ailon and Chazelle, STOC 2006). WIRE.md describes the order of the additions, which
// defines bytes. Scalar and portable, for the kernels of CPUs and GPUs. Pure; any thread may call.
#pragma once

#include "codec/codec.hpp"
#include "kernels/codec/code_rounding.hpp"
#include "kernels/codec/number.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace qccl {

// Any key would do. Under this one no part of a constant block gets more than 2.6 times the root of
// the mean square.
inline constexpr uint64_t rotation_key = 5560;

// Bit i % 32 of word i / 32 is 1 if value i of a block is negated.
inline constexpr auto rotation_signs = [] {
    std::array<uint32_t, most_rotation / 32> signs{};
    for (uint32_t i = 0; i < signs.size(); i++)
        signs[i] = noise_block(rotation_key, 0, i / 4)[i % 4];
    return signs;
}();

// What encoders multiply values by before the butterflies, and decoders behind them, besides the
// sign, the lowest of `signs`: 2^-ceil(log2(d) / 2) and 2^-floor(log2(d) / 2). Together they are 1
// / d, and neither rounds.
constexpr int rotation_log2(uint32_t d) {
    int log2 = 0;
    while (d >> log2 > 1) log2++;
    return log2;
}
constexpr int rotation_shift(uint32_t d, bool is_back) {
    return (rotation_log2(d) + (is_back ? 0 : 1)) / 2;
}
// Returns the signs of a block's values from i on, that of i lowest. Code for GPUs cannot read the
// host's table, and would keep one of its own in memory, so it chooses among constants.
constexpr uint32_t rotation_signs_from(uint32_t i) {
    const auto word = [i]<size_t... number>(std::index_sequence<number...>) {
        uint32_t chosen = 0;
        ((chosen = i / 32 == number
                       ? std::integral_constant<uint32_t, rotation_signs[number]>::value
                       : chosen),
         ...);
        return chosen;
    };
    return word(std::make_index_sequence<rotation_signs.size()>()) >> i % 32;
}
constexpr float rotation_factor(uint32_t d, bool is_back, uint32_t signs) {
    const uint32_t sign = signs << 31;
    return std::bit_cast<float>(static_cast<uint32_t>(127 - rotation_shift(d, is_back)) << 23 |
                                sign);
}

template <class T> constexpr void hadamard(T *x, uint32_t d) {
    for (uint32_t h = 1; h < d; h *= 2)
        for (uint32_t i = 0; i < d; i++)
            if ((i & h) == 0) {
                const T a = x[i], b = x[i + h];
                x[i] = a + b;
                x[i + h] = a - b;
            }
}

// Rotates the whole blocks of `count` values in place. Values behind them stay as they are.
template <class T> void rotate_blocks(uint32_t d, T *values, uint64_t count) {
    for (T *x = values; count >= d; count -= d, x += d) {
        for (uint32_t i = 0; i < d; i++)
            x[i] *= static_cast<T>(rotation_factor(d, false, rotation_signs_from(i)));
        hadamard(x, d);
    }
}

// The reverse; NaN becomes canonical.
template <class T> void rotate_blocks_back(uint32_t d, T *values, uint64_t count) {
    for (T *x = values; count >= d; count -= d, x += d) {
        hadamard(x, d);
        for (uint32_t i = 0; i < d; i++)
            x[i] =
                canonical(x[i] * static_cast<T>(rotation_factor(d, true, rotation_signs_from(i))));
    }
}

} // namespace qccl
