// The arithmetic of the codec `shared`: the scale of a block, on which all ranks agree, and the
// integers that are summed. WIRE.md describes it in words. The kernels of processors and GPUs may
// use it, and communicators, which agree on the scales. Pure; any thread may call.
#pragma once

#include "codec/codec.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace qccl {

// The scale of a block with a value that is not finite. It is above all other scales, so a maximum
// keeps it.
inline constexpr uint16_t shared_nan_scale = 0x7FC0;

// Returns the largest integer of one rank.
constexpr uint32_t shared_limit(const Codec &codec) { return (1U << (codec.shared_bits - 1)) - 1; }
// Returns what a sum of integers of so many ranks may be at most.
constexpr uint64_t most_shared_sum(const Codec &codec, uint32_t ranks) {
    return uint64_t{shared_limit(codec)} * ranks;
}
// fp32 holds all integers up to this one, so sums up to it have no rounding.
inline constexpr uint64_t largest_exact_sum = uint64_t{1} << 24;

// Returns the least bfloat16 that is no less than magnitude / limit. `magnitude` is the pattern of
// a float without its sign. The quotient is rounded to fp64: it has more than twice the bits that
// the magnitude has, so it lies on the same side of every bfloat16 as the exact one.
constexpr uint16_t shared_scale(uint32_t magnitude, uint32_t limit) {
    constexpr uint32_t infinity = 0x7F800000, largest = 0x7F7F;
    constexpr unsigned dropped = 52 - 7;
    constexpr uint64_t rebias = (1023 - 127) << 7;
    if (magnitude >= infinity) return shared_nan_scale;
    const double quotient = static_cast<double>(std::bit_cast<float>(magnitude)) / limit;
    if (quotient < 0x1p-126) { // subnormal numbers are multiples of 2^-133
        const double steps = quotient * 0x1p133;
        const auto whole = static_cast<uint32_t>(steps);
        return static_cast<uint16_t>(whole + (steps > whole ? 1 : 0));
    }
    const uint64_t rounded =
        (std::bit_cast<uint64_t>(quotient) + (uint64_t{1} << dropped) - 1) >> dropped;
    return static_cast<uint16_t>(std::min<uint64_t>(rounded - rebias, largest));
}

// From this number up to its double a float's last bit is worth 1. So a sum with it is rounded to
// the nearest integer, ties to even, and what is left without it is never -0.
inline constexpr float whole_floats = 0x1.8p23F;

// Whether the block of this scale has integers; otherwise all of them are 0.
constexpr bool has_integers(uint16_t scale) { return scale != 0 && scale != shared_nan_scale; }
constexpr float shared_step(uint16_t scale) { return std::bit_cast<float>(uint32_t{scale} << 16); }

// Returns the nearest number of steps to a value of the block, ties to even; never -0.
constexpr float integer_of(float x, uint16_t scale) {
    if (!has_integers(scale)) return 0.0F;
    return (x / shared_step(scale) + whole_floats) - whole_floats;
}
// Returns the sum of values, which has the sum of their integers as a number of steps; with avg,
// their mean.
constexpr float value_of_sum(float sum, uint16_t scale, uint32_t ranks) {
    if (scale == shared_nan_scale) return std::bit_cast<float>(uint32_t{0x7FC00000});
    return (ranks == 1 ? sum : sum / static_cast<float>(ranks)) * shared_step(scale);
}

} // namespace qccl
