// Sums of floating-point values that are rounded once (codec `exact`). An ExactBlock holds 64 such
// sums where kernels of processors work on them: each is the sum of a few doubles, and of a
// LongAccumulator for what these cannot take. The kernels fill blocks; the engine gives them
// memory, and owns it. Any thread; nothing blocks.
#pragma once

#include "base/sizes.hpp"
#include "device/long_accumulator.hpp"

#include <cstddef>
#include <cstdint>

namespace qccl {

// Values from this one on go to LongAccumulators, so that sums of doubles do not overflow.
inline constexpr double least_long_value = 0x1p960;

struct alignas(64) ExactBlock {
    static constexpr size_t values = 64, planes = 3;

    // A bit for each value that has a LongAccumulator; the others are undefined.
    uint64_t long_values;
    // How many of the planes are defined, at least one.
    uint64_t depth;
    // Each value's sum is that of its doubles in these planes and of its LongAccumulator. A plane
    // holds the rounding errors of the one before.
    alignas(64) double plane[planes][values];
    LongAccumulator longs[values];

    // Returns the LongAccumulator of a value, which becomes zero at the first use.
    LongAccumulator &long_of(size_t value) {
        if ((long_values >> value & 1) == 0) longs[value] = {};
        long_values |= uint64_t{1} << value;
        return longs[value];
    }
    // Returns the whole sum of a value.
    LongAccumulator total(size_t value) const {
        LongAccumulator sum{};
        if ((long_values >> value & 1) != 0) sum = longs[value];
        sum.add(plane[0][value]);
        // A zero here says nothing about the sign of the sum.
        for (size_t i = 1; i < depth; i++)
            if (plane[i][value] != 0) sum.add(plane[i][value]);
        return sum;
    }
};

// Bytes of memory for each value of a sum. Values are counted in whole blocks.
inline constexpr size_t exact_value_bytes = sizeof(ExactBlock) / ExactBlock::values;
static_assert(exact_value_bytes * ExactBlock::values == sizeof(ExactBlock));
constexpr size_t exact_bytes(uint64_t values) {
    return round_up(values, ExactBlock::values) * exact_value_bytes;
}

} // namespace qccl
