// Computes the means of onebit's buckets before the fold that makes their codes.
#pragma once

#include "kernels/gpu/gpu_team.hpp"

namespace qccl::QCCL_GPU {

// What a lane knows about the values of either code, and after merging what its team knows. Values
// are multiplied by `factor` before they are summed.
struct MeanParts {
    float factor;
    float sum[2] = {};
    uint32_t negative = 0; // how many values have code 1
    float nothing = 0;     // 0, or NaN if a value is not finite

    QCCL_DEVICE void add(float x) {
        const float part = x * factor;
        const bool is_negative = onebit_code(x) == 1;
        sum[0] += is_negative ? 0.0F : part;
        sum[1] += is_negative ? part : 0.0F;
        negative += is_negative ? 1 : 0;
        nothing += x - x;
    }
    QCCL_DEVICE void merge_lane(unsigned mask) {
        sum[0] += shuffle_xor(sum[0], mask);
        sum[1] += shuffle_xor(sum[1], mask);
        negative += shuffle_xor(negative, mask);
        nothing += shuffle_xor(nothing, mask);
    }
    QCCL_DEVICE float mean(uint32_t code, uint64_t values) const {
        if (nothing != 0) return std::bit_cast<float>(float_nan);
        return onebit_mean(sum[code], code == 1 ? negative : values - negative, factor);
    }
};

template <class T>
QCCL_DEVICE MeanParts mean_parts(const Operand &source, const Span &span, float factor) {
    MeanParts parts{factor};
    for_each_team_value<T>(source, span, [&](float x) { parts.add(x); });
    for (unsigned mask = sum_lanes / 2; mask != 0; mask /= 2) parts.merge_lane(mask);
    return parts;
}

template <class T> QCCL_DEVICE void measure_means(const Batch &batch) {
    using WireScale = typename OnebitTraits<T>::WireScale;
    for_each_team_bucket(batch, [&](const TeamBucket &bucket) {
        const MeanParts parts = mean_parts<T>(bucket.source, bucket.span, 1);
        const uint64_t values = bucket.span.end - bucket.span.start;
        WireScale wire = {parts.mean(0, values), parts.mean(1, values)};
        // A sum that overflows is computed again. All lanes of the warp take part in that.
        const bool overflows =
            parts.nothing == 0 && !(is_finite(parts.sum[0]) && is_finite(parts.sum[1]));
        if (any(overflows)) {
            const MeanParts lowered = mean_parts<T>(bucket.source, bucket.span, onebit_lowered);
#pragma unroll
            for (uint32_t code = 0; code < 2; code++)
                if (!is_finite(parts.sum[code])) wire[code] = lowered.mean(code, values);
        }
        if (!bucket.is_there || team_lane() != 0) return;
        store(scale_at<WireScale>(bucket.sink, bucket.span.start), wire);
    });
}

} // namespace qccl::QCCL_GPU
