// Random-looking numbers computed from a counter: the same everywhere, in any order of use. Any
// thread; nothing blocks.
#pragma once

#include "codec/noise.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace qccl::perf {

// Returns two independent Gaussian values of variance 1 (Box and Muller).
inline std::array<float, 2> gaussian_pair(uint64_t key, uint64_t index) {
    const uint64_t bits = splitmix64(key + index);
    constexpr float unit = 0x1p-32F;
    const float u = (static_cast<float>(bits >> 32) + 0.5F) * unit; // never 0
    const float angle =
        2 * std::numbers::pi_v<float> * static_cast<float>(bits & 0xFFFFFFFFU) * unit;
    const float radius = std::sqrt(-2 * std::log(u));
    return {radius * std::cos(angle), radius * std::sin(angle)};
}

inline float gaussian(uint64_t key, uint64_t index) {
    return gaussian_pair(key, index / 2)[index % 2];
}

} // namespace qccl::perf
