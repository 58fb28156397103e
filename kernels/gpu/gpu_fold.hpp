// The fold, the body of most kernels. Warps take turns through the rows of a batch's tensors. The
// sources of each value are combined in order, and the result is put into the sink.
#pragma once

#include "kernels/codec/value.hpp"
#include "kernels/gpu/gpu_sinks.hpp"

namespace qccl::QCCL_GPU {

inline constexpr unsigned block_warps = block_threads / lanes;

template <class T>
QCCL_DEVICE void combine_values(RedOp op, Octet<T> &values, const Octet<T> &others) {
    const auto each = [&](auto &&combined) {
        for_each_value([&](unsigned i) { values[i] = combined(values[i], others[i]); });
    };
    // The operation is the same for all values, so it is selected once and not for each value.
    switch (op) {
    case RedOp::prod: return each([](T a, T b) { return combine(RedOp::prod, a, b); });
    case RedOp::max: return each([](T a, T b) { return combine(RedOp::max, a, b); });
    case RedOp::min: return each([](T a, T b) { return combine(RedOp::min, a, b); });
    case RedOp::sum:
    case RedOp::avg: break;
    }
    each([](T a, T b) { return combine(RedOp::sum, a, b); });
}

// Combines all sources of a tensor and divides the result by the batch's divisor.
template <class T>
QCCL_DEVICE void take_all(const Batch &batch, const Tensor &tensor, Spot spot, Octet<T> &values) {
    uint32_t source = 0;
    do {
        Octet<T> taken;
        take<T>(batch.operand[tensor.first_source + source], spot, tensor.count, taken);
        if (source == 0)
            for_each_value([&](unsigned i) { values[i] = taken[i]; });
        else
            combine_values<T>(batch.op, values, taken);
    } while (++source < tensor.sources);
    if (batch.divisor == 1) return;
    for_each_value([&](unsigned i) { values[i] = divided(values[i], batch.divisor); });
}

// Zeroes the bytes between the sections of a chunk that ends in this launch.
QCCL_DEVICE void clear_gaps(const Operand &sink) {
    for (size_t i = 0; i < chunk_parts; i++)
        if (lane() < sink.gap[i]) sink.at[sink.section[i] - 1 - lane()] = std::byte{0};
}

// Calls visit(tensor, sink, number) for every row that belongs to this warp.
template <class Visitor> QCCL_DEVICE void for_each_row(const Batch &batch, Visitor &&visit) {
    const uint64_t stride = uint64_t{blocks()} * block_warps;
    uint64_t number = uint64_t{block()} * block_warps + warp();
    for (uint32_t i = 0; i < batch.tensors; i++) {
        const Tensor &tensor = batch.tensor[i];
        const Operand &sink = batch.operand[tensor.first_source - 1];
        const uint64_t rows = (tensor.count + row_values - 1) / row_values;
        if (number == 0) clear_gaps(sink); // also if no value is at the chunk's end
        for (; number < rows; number += stride) visit(tensor, sink, number);
        // The next tensor continues the turns where this one ends, so exactly one warp has its row
        // 0.
        number -= rows;
    }
}

template <class T> QCCL_DEVICE void fold(const Batch &batch) {
    for_each_row(batch, [&](const Tensor &tensor, const Operand &sink, uint64_t number) {
#pragma unroll 1 // halves the registers: more warps hide more of memory's latency
        for (unsigned half = 0; half < 2; half++) {
            const Spot spot{group_of(number), half};
            Octet<T> values;
            take_all<T>(batch, tensor, spot, values);
            put_plain<T>(sink, spot, tensor.count, values);
        }
    });
}

// What a kernel knows about its sources: fewer kinds of sources need fewer registers.
enum class Sources : uint8_t { one_plain, any };

template <class CodecTraits, class T, Sources sources>
QCCL_DEVICE void fold_coded(const Batch &batch) {
    const uint64_t call = batch.call != nullptr ? *batch.call : 0;
    for_each_row(batch, [&](const Tensor &tensor, const Operand &sink, uint64_t number) {
        Row<T> row(tensor, sink, call, number);
#pragma unroll
        for (unsigned half = 0; half < 2; half++)
            if constexpr (sources == Sources::one_plain)
                take_plain<T>(batch.operand[tensor.first_source], row.spot(half), tensor.count,
                              row.values[half]);
            else
                take_all<T>(batch, tensor, row.spot(half), row.values[half]);
        put_coded<CodecTraits>(row);
    });
}

} // namespace qccl::QCCL_GPU
