#include "engine/gpu_steps.hpp"

#include "engine/gpu_folds.hpp"

namespace qccl {

static Done launch_step(Launches &launches, const TileContext &context, const TileStep &step) {
    const DataType sum_type = accumulator_of(context.type);
    const ChunkRange chunk = chunk_of(context, step);
    switch (step.what) {
    case Op::What::copy:
        if (step.dst == step.src && step.dst_type == step.src_type) return {}; // in place
        return launches.copy(step.dst_type, step.dst, step.src_type, step.src, context.count);
    case Op::What::reduce:
        return launches.reduce(context.op, sum_type, step.dst, step.src_type, step.src,
                               context.count);
    case Op::What::divide: return launches.divide(sum_type, step.dst, context.count, context.ranks);
    case Op::What::encode:
        return launches.encode(chunk, step.noise, step.src_type, step.src, step.dst);
    case Op::What::decode: return launches.decode(chunk, step.src, step.dst_type, step.dst);
    case Op::What::decode_add: return launches.decode_add(chunk, context.op, step.src, step.dst);
    case Op::What::label: break; // headers are the host's
    }
    return {};
}

static Done launch_fold(Launches &launches, const TileContext &context, const FoundFold &found) {
    std::array<ChunkRange, Launches::most_sources> chunks;
    std::array<Launches::Source, Launches::most_sources> sources;
    for (size_t i = 0; i < found.source_count; i++) {
        const TileStep &step = *found.sources[i];
        chunks[i] = chunk_of(context, step);
        const bool is_coded = step.what == Op::What::decode || step.what == Op::What::decode_add;
        sources[i] = {
            .chunk = is_coded ? &chunks[i] : nullptr, .type = step.src_type, .at = step.src};
    }
    const Launches::Sum sum{.op = context.op,
                            .divisor = found.divides ? context.ranks : 1,
                            .sources = {sources.data(), found.source_count},
                            .count = context.count};
    const TileStep &sink = found.sink ? *found.sink : *found.sources[0];
    if (sink.what == Op::What::encode)
        return launches.fold(sum, chunk_of(context, sink), sink.noise, sink.dst);
    return launches.fold(sum, accumulator_of(context.type), sink.dst_type, sink.dst);
}

// What one step writes the next reads: they do not go together in a launch.
Done launch_steps(Launches &launches, const TileContext &context, std::span<TileStep> steps) {
    while (!steps.empty()) {
        const auto fold = find_fold(context, steps);
        QCCL_TRY(fold ? launch_fold(launches, context, *fold)
                      : launch_step(launches, context, steps[0]));
        QCCL_TRY(launches.flush());
        steps = steps.subspan(fold ? fold->steps : 1);
    }
    return {};
}

} // namespace qccl
