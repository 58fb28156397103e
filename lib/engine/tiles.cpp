#include "engine/tiles.hpp"

#include <algorithm>

namespace qccl {

void run_step(const TileContext &context, const TileStep &step, uint64_t begin, uint64_t count) {
    const Kernels &kernels = *context.kernels;
    const DataType sum_type = accumulator_of(context.type);
    const auto range = [&] {
        return ChunkRange{.codec = context.codec,
                          .layout = context.layout,
                          .type = context.type,
                          .whole = context.count,
                          .begin = begin,
                          .count = count};
    };
    std::byte *const dst = step.dst + begin * step.dst_stride;
    const std::byte *const src = step.src + begin * step.src_stride;
    switch (step.what) {
    case Op::What::copy:
        if (dst == src && step.dst_type == step.src_type) break; // in place
        kernels.copy(step.dst_type, dst, step.src_type, src, count, step.streams);
        break;
    case Op::What::reduce:
        kernels.reduce(context.op, sum_type, dst, step.src_type, src, count);
        break;
    case Op::What::divide: kernels.divide(sum_type, dst, count, context.ranks); break;
    case Op::What::encode: kernels.encode(range(), step.noise, step.src_type, src, step.dst); break;
    case Op::What::decode:
        kernels.decode(range(), step.src, step.dst_type, dst, step.streams);
        break;
    case Op::What::decode_add: kernels.decode_add(range(), context.op, step.src, dst); break;
    case Op::What::label: break; // headers are written once for a chunk, not for a tile
    }
}

void run_tiles(const TileContext &context, std::span<const TileStep> steps, uint64_t tile) {
    for (uint64_t begin = 0; begin < context.count; begin += tile) {
        const uint64_t count = std::min(tile, context.count - begin);
        for (const TileStep &step : steps) run_step(context, step, begin, count);
    }
}

} // namespace qccl
