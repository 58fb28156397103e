// The order in which a bucket's values are summed: each of 32 lanes takes every 32nd value, and
// then the lanes add up pairwise, so that a GPU's warp sums without waiting. Scalar and portable.
// The scalar reference uses the function, GPU kernels use the order.
#pragma once

#include <cstdint>

namespace qccl {

inline constexpr unsigned sum_lanes = 32;

// Returns the sum of value(0), ..., value(count - 1) in fp32.
template <class Value> float pinned_sum(uint64_t count, Value &&value) {
    float sums[sum_lanes] = {};
    for (uint64_t i = 0; i < count; i++) sums[i % sum_lanes] += value(i);
    for (unsigned distance = sum_lanes / 2; distance != 0; distance /= 2)
        for (unsigned lane = 0; lane < distance; lane++) sums[lane] += sums[lane + distance];
    return sums[0];
}

} // namespace qccl
