// Runs operations over ranges of elements: one over all, or several tile by tile together, so that
// what one leaves in the L1 cache is there for the next. Knows addresses, and nothing of wires,
// ranks or schedules.
#pragma once

#include "engine/op.hpp"
#include "kernels/kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

// An operation whose operands have addresses. Element e of an operand lies at dst + e * dst_stride;
// stride 0 for a tile's accumulator, which every tile begins anew. For encoded bytes the address is
// the payload's and the stride is unused.
struct TileStep {
    Op::What what = Op::What::copy;
    bool streams = false;
    DataType dst_type = DataType::float32, src_type = DataType::float32;
    std::byte *dst = nullptr;
    const std::byte *src = nullptr;
    size_t dst_stride = 0, src_stride = 0;
    Noise noise; // encode
    // encode, decode: where they are not the context's.
    const Codec *codec = nullptr;
    const PayloadLayout *layout = nullptr;
    // encode: where a tile's bytes are made before they are streamed to dst; decode, decode_add:
    // where the tile that has just been made still lies. See Workbench.
    std::byte *scratch = nullptr;
};

// What all steps of a chunk have in common.
struct TileContext {
    const Kernels *kernels = nullptr;
    const Codec *codec = nullptr;
    const PayloadLayout *layout = nullptr; // of the whole chunk; unused by plain values
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t ranks = 1;
    uint64_t count = 0; // elements of the chunk
};

// The two operations on plain values that need no step to be described. A copy in place is none.
inline void copy_plain(const Kernels &kernels, DataType dst_type, std::byte *dst, DataType src_type,
                       const std::byte *src, uint64_t count, bool streams) {
    if (dst == src && dst_type == src_type) return;
    kernels.copy(dst_type, dst, src_type, src, count, streams);
}
inline void reduce_plain(const TileContext &context, std::byte *sum, DataType src_type,
                         const std::byte *src, uint64_t count) {
    context.kernels->reduce(context.op, accumulator_of(context.type), sum, src_type, src, count);
}

// One step over the whole chunk. It has no scratch.
void run_whole(const TileContext &context, const TileStep &step);

// All of them, `tile_count` elements at a time, each tile through all steps.
void run_tiles(const TileContext &context, std::span<const TileStep> steps, uint64_t tile_count);

} // namespace qccl
