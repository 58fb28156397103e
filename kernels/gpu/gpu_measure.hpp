// Computes the scales of buckets that do not fit into a warp's row, before the fold that makes
// their codes. A warp reads a small bucket, a whole block reads a large one.
#pragma once

#include "kernels/gpu/gpu_fold.hpp"

namespace qccl::QCCL_GPU {

// A bucket of this many values or more is read by a whole block.
inline constexpr uint64_t large_bucket = 8192;

// Values that a thread reads at a time, next to each other.
inline constexpr unsigned scan_values = 4;

// Calls see(values, there) for every `stride`-th four values of a bucket, the first of which are
// the thread's: it is number `first` of the bucket's `stride` readers. `there` tells how many
// values exist. All lanes of a warp get the same number of calls.
template <class T, class See>
QCCL_DEVICE void scan(const Operand &source, uint64_t start, uint64_t end, unsigned first,
                      unsigned stride, See &&see) {
    constexpr unsigned runs = 4; // asked for at once
    with_bits<T>(source.type, [&]<class Bits>(Bits) {
        const bool is_aligned_here =
            is_aligned<Bits, scan_values>(source.at + start * sizeof(Bits));
        const uint64_t step = uint64_t{stride} * scan_values;
        for (uint64_t row = start + (first - first % lanes) * scan_values; row < end;
             row += step * runs) {
            Bits bits[runs][scan_values] = {};
            unsigned there[runs];
#pragma unroll
            for (unsigned run = 0; run < runs; run++) {
                const uint64_t place = row + run * step + first % lanes * scan_values;
                const std::byte *const at = source.at + place * sizeof(Bits);
                there[run] = remaining(place, end, scan_values);
                if (is_aligned_here && there[run] == scan_values)
                    load(at, bits[run]);
                else
#pragma unroll
                    for (unsigned i = 0; i < scan_values; i++)
                        if (i < there[run]) bits[run][i] = load_one<Bits>(at + i * sizeof(Bits));
            }
            T values[runs][scan_values];
            widen_values(source.type, bits, values);
#pragma unroll
            for (unsigned run = 0; run < runs; run++) see(values[run], there[run]);
        }
    });
}

template <class CodecTraits, class T>
QCCL_DEVICE typename CodecTraits::Extremes
extremes_of(const Operand &source, uint64_t start, uint64_t end, unsigned first, unsigned stride) {
    auto extremes = CodecTraits::Extremes::none();
    scan<T>(source, start, end, first, stride, [&](const T(&values)[scan_values], unsigned there) {
        if constexpr (requires { extremes.add_lanes(values, there); }) {
            extremes.add_lanes(values, there);
        } else {
#pragma unroll
            for (unsigned i = 0; i < scan_values; i++)
                if (i < there) extremes.add(values[i]);
        }
    });
    for (unsigned mask = 1; mask < lanes; mask *= 2) extremes.merge_lane(mask);
    return extremes;
}

QCCL_DEVICE uint64_t bucket_values(const Tensor &tensor, const Operand &sink) {
    return sink.bucket == 0 ? tensor.count : sink.bucket;
}

struct Span {
    uint64_t start, end;
};
QCCL_DEVICE Span bucket_span(const Tensor &tensor, uint64_t values, uint64_t bucket) {
    const uint64_t start = bucket * values;
    return {start, start + values < tensor.count ? start + values : tensor.count};
}

template <class CodecTraits, class T>
QCCL_DEVICE void measure_small(const Tensor &tensor, const Operand *operands, uint64_t values,
                               uint64_t buckets) {
    const Operand &sink = operands[0], &source = operands[1];
    const uint64_t stride = uint64_t{blocks()} * block_warps;
    for (uint64_t i = uint64_t{block()} * block_warps + warp(); i < buckets; i += stride) {
        const Span span = bucket_span(tensor, values, i);
        const auto extremes =
            extremes_of<CodecTraits, T>(source, span.start, span.end, lane(), lanes);
        if (lane() == 0) CodecTraits::store_measured(sink, span.start, extremes);
    }
}

template <class CodecTraits, class T>
QCCL_DEVICE void measure_large(const Tensor &tensor, const Operand *operands, uint64_t values,
                               uint64_t buckets) {
    using Extremes = typename CodecTraits::Extremes;
    QCCL_SHARED(Extremes, parts, block_warps);
    const Operand &sink = operands[0], &source = operands[1];
    for (uint64_t i = block(); i < buckets; i += blocks()) {
        const Span span = bucket_span(tensor, values, i);
        const auto part =
            extremes_of<CodecTraits, T>(source, span.start, span.end, thread(), block_threads);
        if (lane() == 0) parts[warp()] = part;
        barrier();
        if (thread() == 0) {
            Extremes extremes = Extremes::none();
            for (unsigned w = 0; w < block_warps; w++) extremes.merge(parts[w]);
            CodecTraits::store_measured(sink, span.start, extremes);
        }
        barrier(); // the next bucket reuses `parts`
    }
}

template <class CodecTraits, class T> QCCL_DEVICE void measure(const Batch &batch) {
    for (uint32_t i = 0; i < batch.tensors; i++) {
        const Tensor &tensor = batch.tensor[i];
        if (tensor.count == 0) continue;
        const Operand *const operands = &batch.operand[tensor.first_source - 1];
        const uint64_t values = bucket_values(tensor, operands[0]);
        const uint64_t buckets = (tensor.count - 1) / values + 1;
        if (values < large_bucket)
            measure_small<CodecTraits, T>(tensor, operands, values, buckets);
        else
            measure_large<CodecTraits, T>(tensor, operands, values, buckets);
    }
}

} // namespace qccl::QCCL_GPU
