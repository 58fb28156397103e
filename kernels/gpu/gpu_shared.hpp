// The passes of the codec `shared` (codec/shared_scales.hpp): the scales of a rank's own blocks,
// values to integers, and sums of integers to values. A launch of theirs has a tensor for each part
// of a vector, whose blocks begin at the tensor's first value. The operand of scales has their
// block as its bucket. T is the accumulator's type of the caller's values.
#pragma once

#include "codec/shared_scales.hpp"
#include "kernels/gpu/gpu_fold.hpp"

namespace qccl::QCCL_GPU {

// ---- Scales

template <class T> struct SharedTraits {
    using Extremes = Magnitude<T>;

    QCCL_DEVICE static void store_measured(const Operand &sink, uint64_t place,
                                           const Extremes &extremes) {
        store_one(scale_at<uint16_t>(sink, place), shared_scale(extremes.largest, sink.clip));
    }
};

// Whether lanes of a warp that are next to each other have whole blocks together.
QCCL_DEVICE bool has_blocks_in_runs(const Operand &scales) {
    return scales.bucket >= Striped::length && scales.bucket <= Striped::length * lanes &&
           scales.bucket == 1U << scales.bucket_shift;
}

// Measures a row, each of whose runs lies in one block.
template <class T>
QCCL_DEVICE void measure_runs(const Tensor &tensor, const Operand *operands, uint64_t number) {
    const Operand &sink = operands[0];
    const Place<Striped> place(number, tensor.count);
    Held<Striped, T> values;
    take_plain<T>(operands[1], place, values);
    const unsigned block_lanes = sink.bucket / Striped::length;
#pragma unroll
    for (unsigned run = 0; run < Striped::runs; run++) {
        auto magnitude = Magnitude<T>::none();
#pragma unroll
        for (unsigned i = 0; i < Striped::length; i++) magnitude.add(values[run][i]);
        for (unsigned mask = 1; mask < block_lanes; mask *= 2) magnitude.merge_lane(mask);
        if (place.has(run) && lane() % block_lanes == 0)
            SharedTraits<T>::store_measured(sink, place.start(run), magnitude);
    }
}

template <class T> QCCL_DEVICE void find_shared_scales(const Batch &batch) {
    for (uint32_t i = 0; i < batch.tensors; i++) {
        const Tensor &tensor = batch.tensor[i];
        const Operand *const operands = &batch.operand[tensor.first_source - 1];
        if (has_blocks_in_runs(operands[0])) {
            const uint64_t rows = (tensor.count + row_values - 1) / row_values;
            for (uint64_t row = uint64_t{block()} * block_warps + warp(); row < rows;
                 row += uint64_t{blocks()} * block_warps)
                measure_runs<T>(tensor, operands, row);
        } else if (tensor.count != 0) {
            measure_tensor<SharedTraits<T>, T>(tensor, operands);
        }
    }
}

// ---- Integers and values

// Loads the scales of a lane's values.
QCCL_DEVICE void load_scales(const Operand &scales, const Place<Striped> &place,
                             Held<Striped, uint16_t> &held) {
    const auto load_scale = [&](uint64_t number) {
        return load_one<uint16_t>(scales.at + number * sizeof(uint16_t));
    };
    if (scales.bucket % Striped::length == 0) {
        const RunBuckets<Striped> bucket(scales, place);
#pragma unroll
        for (unsigned run = 0; run < Striped::runs; run++) {
            const uint16_t scale =
                place.has(run) ? load_scale(bucket.first + bucket.behind[run]) : uint16_t{0};
#pragma unroll
            for (unsigned i = 0; i < Striped::length; i++) held[run][i] = scale;
        }
        return;
    }
    for_each_value<Striped>([&](unsigned run, unsigned i) { held[run][i] = 0; });
    for_each_slowly(place, [&](unsigned run, unsigned i, uint64_t at) {
        set(held, run, i, load_scale(bucket_of(scales, at)));
    });
}

// The sources are values and scales. A third one, of type T, receives what the roundings lose.
template <class T> struct SharedIntegersRow {
    const Batch &batch;

    QCCL_DEVICE void operator()(const Tensor &tensor, const Operand &sink, uint64_t number) const {
        const Operand *const sources = &batch.operand[tensor.first_source];
        const Place<Striped> place(number, tensor.count);
        Held<Striped, T> values;
        Held<Striped, uint16_t> scales;
        Held<Striped, float> integers;
        take_plain<T>(sources[0], place, values);
        load_scales(sources[1], place, scales);
        for_each_value<Striped>([&](unsigned run, unsigned i) {
            integers[run][i] = integer_of(static_cast<float>(values[run][i]), scales[run][i]);
        });
        store_runs(sink.at, place, integers);
        if (tensor.sources < 3) return;
        for_each_value<Striped>([&](unsigned run, unsigned i) {
            const float decoded = value_of_sum(integers[run][i], scales[run][i], 1);
            values[run][i] = kept_error(T(0), values[run][i], static_cast<T>(decoded), 1);
        });
        store_runs(sources[2].at, place, values);
    }
};
template <class T> QCCL_DEVICE void make_shared_integers(const Batch &batch) {
    for_each_row(batch, SharedIntegersRow<T>{batch});
}

// The sources are sums of integers and scales.
template <class T> struct SharedValuesRow {
    const Batch &batch;

    QCCL_DEVICE void operator()(const Tensor &tensor, const Operand &sink, uint64_t number) const {
        const Operand *const sources = &batch.operand[tensor.first_source];
        const Place<Striped> place(number, tensor.count);
        Held<Striped, float> sums;
        Held<Striped, uint16_t> scales;
        Held<Striped, T> values;
        load_runs(sources[0].at, place, sums);
        load_scales(sources[1], place, scales);
        for_each_value<Striped>([&](unsigned run, unsigned i) {
            values[run][i] =
                static_cast<T>(value_of_sum(sums[run][i], scales[run][i], batch.divisor));
        });
        make_canonical(values);
        put_plain<T>(sink, place, values);
    }
};
template <class T> QCCL_DEVICE void make_shared_values(const Batch &batch) {
    for_each_row(batch, SharedValuesRow<T>{batch});
}

} // namespace qccl::QCCL_GPU
