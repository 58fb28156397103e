// Sums over buckets: teams of 32 lanes add up a bucket in the order that summed_block.hpp defines,
// whatever the width of a warp. The encoders of onebit and terngrad use these sums.
#pragma once

#include "kernels/codec/summed_block.hpp"
#include "kernels/gpu/gpu_measure.hpp"

namespace qccl::QCCL_GPU {

QCCL_DEVICE unsigned team_lane() { return thread() % sum_lanes; }

struct TeamBucket {
    const Tensor &tensor;
    const Operand &sink, &source;
    bool is_there; // false: the team only takes part because its warp's other team has a bucket
    Span span;
};

// Calls visit(bucket) for every bucket that belongs to this team.
template <class Visitor>
QCCL_DEVICE void for_each_team_bucket(const Batch &batch, Visitor &&visit) {
    constexpr unsigned teams = block_threads / sum_lanes;
    const uint64_t stride = uint64_t{blocks()} * teams;
    for (uint32_t i = 0; i < batch.tensors; i++) {
        const Tensor &tensor = batch.tensor[i];
        const Operand &sink = batch.operand[tensor.first_source - 1];
        const uint64_t values = bucket_values(tensor, sink);
        const uint64_t buckets = (tensor.count + values - 1) / values;
        // Two teams may share a warp, and all lanes of a warp must take the same number of turns.
        const uint64_t turns = (buckets + stride - 1) / stride;
        uint64_t number = uint64_t{block()} * teams + thread() / sum_lanes;
        for (uint64_t turn = 0; turn < turns; turn++, number += stride) {
            const bool is_there = number < buckets;
            visit(TeamBucket{tensor, sink, batch.operand[tensor.first_source], is_there,
                             is_there ? bucket_span(tensor, values, number) : Span{0, 0}});
        }
    }
}

template <class T> QCCL_DEVICE float load_float_value(const Operand &source, uint64_t place) {
    float x = 0;
    with_bits<T>(source.type, [&]<class Bits>(Bits) {
        const auto bits = load_one<Bits>(source.at + place * sizeof(Bits));
        x = static_cast<float>(widened<T>(source.type, bits));
    });
    return x;
}

// Calls f(x) for the lane's values of a bucket, in order. Eight values are asked for at once.
template <class T, class Call>
QCCL_DEVICE void for_each_team_value(const Operand &source, const Span &span, Call &&call) {
    constexpr unsigned at_once = 8;
    uint64_t place = span.start + team_lane();
    with_bits<T>(source.type, [&]<class Bits>(Bits) {
        for (; place + (at_once - 1) * sum_lanes < span.end; place += at_once * sum_lanes) {
            Bits bits[1][at_once];
            T values[1][at_once];
#pragma unroll
            for (unsigned i = 0; i < at_once; i++)
                bits[0][i] = load_one<Bits>(source.at + (place + i * sum_lanes) * sizeof(Bits));
            widen_values(source.type, bits, values);
#pragma unroll
            for (unsigned i = 0; i < at_once; i++) call(static_cast<float>(values[0][i]));
        }
    });
    for (; place < span.end; place += sum_lanes) call(load_float_value<T>(source, place));
}

// Returns the sum of what the lanes of the team have.
QCCL_DEVICE float team_sum(float sum) {
    for (unsigned mask = sum_lanes / 2; mask != 0; mask /= 2) sum += shuffle_xor(sum, mask);
    return sum;
}

} // namespace qccl::QCCL_GPU
