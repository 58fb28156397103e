// Computes the means of onebit's buckets before the fold that makes their codes.
#pragma once

#include "kernels/gpu/gpu_team.hpp"

namespace qccl::QCCL_GPU {

// What a lane knows about the values of either code, and after merging what its team knows.
struct MeanParts {
    float sum[2] = {}, lowered_sum[2] = {};
    uint32_t count[2] = {};
    uint32_t largest = 0; // largest magnitude as its bit pattern

    QCCL_DEVICE void add(float x) {
        const uint32_t magnitude = std::bit_cast<uint32_t>(x) & ~0U >> 1;
        largest = largest > magnitude ? largest : magnitude;
#pragma unroll
        for (uint32_t code = 0; code < 2; code++) {
            const bool is_of = onebit_code(x) == code;
            sum[code] += is_of ? x : 0.0F;
            lowered_sum[code] += is_of ? x * onebit_lowered : 0.0F;
            count[code] += is_of ? 1 : 0;
        }
    }
    QCCL_DEVICE void merge_lane(unsigned mask) {
        const uint32_t other = shuffle_xor(largest, mask);
        largest = largest > other ? largest : other;
#pragma unroll
        for (uint32_t code = 0; code < 2; code++) {
            sum[code] += shuffle_xor(sum[code], mask);
            lowered_sum[code] += shuffle_xor(lowered_sum[code], mask);
            count[code] += shuffle_xor(count[code], mask);
        }
    }
    QCCL_DEVICE float mean(uint32_t code) const {
        if (largest >= float_infinity) return std::bit_cast<float>(float_nan);
        return is_finite(sum[code]) ? onebit_mean(sum[code], count[code], 1)
                                    : onebit_mean(lowered_sum[code], count[code], onebit_lowered);
    }
};

template <class T> QCCL_DEVICE MeanParts mean_parts(const Operand &source, const Span &span) {
    MeanParts parts;
    for_each_team_value<T>(source, span, [&](float x) { parts.add(x); });
    for (unsigned mask = sum_lanes / 2; mask != 0; mask /= 2) parts.merge_lane(mask);
    return parts;
}

template <class T> QCCL_DEVICE void measure_means(const Batch &batch) {
    using WireScale = typename OnebitTraits<T>::WireScale;
    for_each_team_bucket(batch, [&](const TeamBucket &bucket) {
        const MeanParts parts = mean_parts<T>(bucket.source, bucket.span);
        if (!bucket.is_there || team_lane() != 0) return;
        const WireScale wire = {parts.mean(0), parts.mean(1)};
        store(scale_at<WireScale>(bucket.sink, bucket.span.start), wire);
    });
}

} // namespace qccl::QCCL_GPU
