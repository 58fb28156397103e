// The fold, the body of most kernels. Warps take turns through the rows of a batch's tensors. The
// sources of each value are combined in order, and the result is put into the sink.
#pragma once

#include "kernels/codec/value.hpp"
#include "kernels/gpu/gpu_sinks.hpp"

namespace qccl::QCCL_GPU {

inline constexpr unsigned block_warps = block_threads / lanes;

// Combines a lane's values. NaN need not be canonical.
template <class T, class Layout>
QCCL_DEVICE void combine_values(RedOp op, Held<Layout, T> &values, const Held<Layout, T> &others) {
    const auto each = [&](auto &&combined) {
        for_each_value<Layout>([&](unsigned run, unsigned i) {
            values[run][i] = combined(values[run][i], others[run][i]);
        });
    };
    // The operation is the same for all values, so it is selected once and not for each value.
    switch (op) {
    case RedOp::prod: return each([](T a, T b) { return combine_raw(RedOp::prod, a, b); });
    case RedOp::max: return each([](T a, T b) { return combine_raw(RedOp::max, a, b); });
    case RedOp::min: return each([](T a, T b) { return combine_raw(RedOp::min, a, b); });
    case RedOp::sum:
    case RedOp::avg: break;
    }
    each([](T a, T b) { return combine_raw(RedOp::sum, a, b); });
}

// Combines all sources of a tensor and divides the result by the batch's divisor. The first source
// is not copied to the sum but taken into it, so that the next source is asked for before the first
// has arrived.
template <class T, class Layout>
QCCL_DEVICE void take_all(const Batch &batch, const Tensor &tensor, const Place<Layout> &place,
                          Held<Layout, T> &values) {
    take<T>(batch.operand[tensor.first_source], place, values);
#pragma unroll 1
    for (uint32_t source = 1; source < tensor.sources; source++) {
        Held<Layout, T> taken;
        take<T>(batch.operand[tensor.first_source + source], place, taken);
        combine_values<T, Layout>(batch.op, values, taken);
    }
    if (batch.divisor != 1)
        for_each_value<Layout>([&](unsigned run, unsigned i) {
            values[run][i] = divided(values[run][i], batch.divisor);
        });
    make_canonical(values);
}

// Zeroes the bytes between the sections of a chunk that ends in this launch.
QCCL_DEVICE void clear_gaps(const Operand &sink) {
    for (size_t i = 0; i < chunk_parts; i++)
        if (lane() < sink.gap[i]) sink.at[sink.section[i] - 1 - lane()] = std::byte{0};
}

// Calls visit(tensor, sink, number) for every row that belongs to this warp. Between two rows a
// lane keeps two numbers only, so that registers are left for values; a row has enough values that
// 32 bits count the rows of any GPU's memory.
template <class Visitor> QCCL_DEVICE void for_each_row(const Batch &batch, Visitor &&visit) {
    uint32_t i = 0, number = block() * block_warps + warp();
#pragma unroll 1
    while (i < batch.tensors) {
        const Tensor &tensor = batch.tensor[i];
        const Operand &sink = batch.operand[tensor.first_source - 1];
        if (number == 0) clear_gaps(sink); // also if no value is at the chunk's end
        const auto rows = static_cast<uint32_t>((tensor.count + row_values - 1) / row_values);
        if (number < rows) {
            visit(tensor, sink, number);
            number += blocks() * block_warps;
        } else {
            // The next tensor continues the turns where this one ends, so exactly one warp has its
            // row 0.
            number -= rows;
            i++;
        }
    }
}

template <class T> QCCL_DEVICE void fold(const Batch &batch) {
    for_each_row(batch, [&](const Tensor &tensor, const Operand &sink, uint64_t number) {
        const Place<Striped> place(number, tensor.count);
        Held<Striped, T> values;
        take_all<T>(batch, tensor, place, values);
        put_plain<T>(sink, place, values);
    });
}

// What a kernel knows about its sources: fewer kinds of sources need fewer registers.
enum class Sources : uint8_t { one_plain, any };

template <class CodecTraits, class T, Sources sources>
QCCL_DEVICE void fold_coded(const Batch &batch) {
    for_each_row(batch, [&](const Tensor &tensor, const Operand &sink, uint64_t number) {
        Row<T> row(batch, tensor, sink, number);
        if constexpr (sources == Sources::one_plain) {
            take_plain<T>(batch.operand[tensor.first_source], row.place, row.values);
            put_coded<CodecTraits>(row);
        } else {
            take_all<T>(batch, tensor, row.place, row.values);
            put_fused<CodecTraits>(row); // the launcher fuses nothing else
        }
    });
}

} // namespace qccl::QCCL_GPU
