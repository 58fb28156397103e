// The means of onebit's buckets, ahead of the fold that makes their codes. Teams of 32 lanes sum up
// in the order that pinned_sum.hpp has, whatever the width of a warp.
#pragma once

#include "kernels/gpu_measure.hpp"
#include "kernels/pinned_sum.hpp"

namespace qccl::QCCL_GPU {

// Of the values of either code what a lane knows, then its team.
struct MeanParts {
    float sum[2] = {}, lowered_sum[2] = {};
    uint32_t count[2] = {};
    uint32_t largest = 0; // magnitude, as its pattern

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
        constexpr uint32_t infinity = 0x7F800000;
        if (largest >= infinity) return std::bit_cast<float>(float_nan);
        return is_finite(sum[code]) ? onebit_mean(sum[code], count[code], 1)
                                    : onebit_mean(lowered_sum[code], count[code], onebit_lowered);
    }
};

template <class T>
QCCL_DEVICE MeanParts mean_parts(const Operand &source, const Span &span, unsigned team_lane) {
    MeanParts parts;
    with_bits<T>(source.type, [&]<class Bits>(Bits) {
        for (uint64_t place = span.start + team_lane; place < span.end; place += sum_lanes) {
            const Bits bits[1] = {load_one<Bits>(source.at + place * sizeof(Bits))};
            T value[1];
            widen_values(source.type, bits, value);
            parts.add(static_cast<float>(value[0]));
        }
    });
    for (unsigned mask = sum_lanes / 2; mask != 0; mask /= 2) parts.merge_lane(mask);
    return parts;
}

template <class T> QCCL_DEVICE void measure_means(const Batch &batch) {
    using Wire = typename OnebitForm<T>::Wire;
    constexpr unsigned teams = block_threads / sum_lanes;
    const uint64_t stride = uint64_t{blocks()} * teams;
    for (uint32_t i = 0; i < batch.tensors; i++) {
        const Tensor &tensor = batch.tensor[i];
        const Operand &sink = batch.operand[tensor.first_source - 1],
                      &source = batch.operand[tensor.first_source];
        const uint64_t values = bucket_values(tensor, sink);
        const uint64_t buckets = (tensor.count + values - 1) / values;
        // Two teams may share a warp, whose lanes take as many turns.
        const uint64_t turns = (buckets + stride - 1) / stride;
        uint64_t bucket = uint64_t{block()} * teams + thread() / sum_lanes;
        for (uint64_t turn = 0; turn < turns; turn++, bucket += stride) {
            const bool is_there = bucket < buckets;
            const Span span = is_there ? bucket_span(tensor, values, bucket) : Span{0, 0};
            const MeanParts parts = mean_parts<T>(source, span, thread() % sum_lanes);
            if (!is_there || thread() % sum_lanes != 0) continue;
            const Wire wire = {parts.mean(0), parts.mean(1)};
            store(scale_at<Wire>(sink, span.start), wire);
        }
    }
}

} // namespace qccl::QCCL_GPU
