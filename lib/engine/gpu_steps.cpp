#include "engine/gpu_steps.hpp"

namespace qccl {

static Done launch_step(Launches &launches, const TileContext &context, const TileStep &step) {
    const DataType sum_type = accumulator_of(context.type);
    const ChunkRange range{.codec = step.codec ? step.codec : context.codec,
                           .layout = step.layout ? step.layout : context.layout,
                           .type = context.type,
                           .whole = context.count,
                           .begin = 0,
                           .count = context.count};
    switch (step.what) {
    case Op::What::copy:
        if (step.dst == step.src && step.dst_type == step.src_type) return {}; // in place
        return launches.copy(step.dst_type, step.dst, step.src_type, step.src, context.count);
    case Op::What::reduce:
        return launches.reduce(context.op, sum_type, step.dst, step.src_type, step.src,
                               context.count);
    case Op::What::divide: return launches.divide(sum_type, step.dst, context.count, context.ranks);
    case Op::What::encode:
        return launches.encode(range, step.noise, step.src_type, step.src, step.dst);
    case Op::What::decode: return launches.decode(range, step.src, step.dst_type, step.dst);
    case Op::What::decode_add: return launches.decode_add(range, context.op, step.src, step.dst);
    case Op::What::label: break; // headers are the host's
    }
    return {};
}

// What one step writes the next reads: they do not go together in a launch.
Done launch_steps(Launches &launches, const TileContext &context, std::span<const TileStep> steps) {
    for (const TileStep &step : steps) {
        QCCL_TRY(launch_step(launches, context, step));
        QCCL_TRY(launches.flush());
    }
    return {};
}

} // namespace qccl
