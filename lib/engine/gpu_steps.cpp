// Turns each operation, or each sum that find_fold recognizes, into a call of the launcher.
#include "engine/gpu_steps.hpp"

#include "engine/gpu_folds.hpp"

namespace qccl {

static Done launch_step(KernelLauncher &launcher, const TileContext &context,
                        const TileStep &step) {
    const DataType sum_type = accumulator_of(context.type);
    const ChunkRange chunk = chunk_of(context, step);
    switch (step.what) {
    case Op::What::copy:
        if (step.dst == step.src && step.dst_type == step.src_type) return {}; // in-place
        return launcher.copy(step.dst_type, step.dst, step.src_type, step.src, context.count);
    case Op::What::reduce:
        return launcher.reduce(context.op, sum_type, step.dst, step.src_type, step.src,
                               context.count);
    case Op::What::divide: return launcher.divide(sum_type, step.dst, context.count, context.ranks);
    case Op::What::encode:
        return launcher.encode(chunk, step.noise, step.src_type, step.src, step.dst);
    case Op::What::decode: return launcher.decode(chunk, step.src, step.dst_type, step.dst);
    case Op::What::decode_add: return launcher.decode_add(chunk, context.op, step.src, step.dst);
    case Op::What::write_header: break; // the host writes headers
    }
    return {};
}

static Done launch_fold(KernelLauncher &launcher, const TileContext &context,
                        const FoundFold &found) {
    std::array<ChunkRange, KernelLauncher::most_sources> chunks;
    std::array<KernelLauncher::Source, KernelLauncher::most_sources> sources;
    for (size_t i = 0; i < found.source_count; i++) {
        const TileStep &step = *found.sources[i];
        chunks[i] = chunk_of(context, step);
        const bool is_coded = step.what == Op::What::decode || step.what == Op::What::decode_add;
        sources[i] = {
            .chunk = is_coded ? &chunks[i] : nullptr, .type = step.src_type, .at = step.src};
    }
    const KernelLauncher::Sum sum{.op = context.op,
                                  .divisor = found.divides ? context.ranks : 1,
                                  .sources = {sources.data(), found.source_count},
                                  .count = context.count};
    const TileStep &sink = found.sink ? *found.sink : *found.sources[0];
    if (sink.what == Op::What::encode)
        return launcher.fold(sum, chunk_of(context, sink), sink.noise, sink.dst);
    return launcher.fold(sum, accumulator_of(context.type), sink.dst_type, sink.dst);
}

// Each step reads what the step before wrote, so they cannot share a launch.
Done launch_steps(KernelLauncher &launcher, const TileContext &context, std::span<TileStep> steps) {
    while (!steps.empty()) {
        const auto fold = find_fold(context, steps);
        QCCL_TRY(fold ? launch_fold(launcher, context, *fold)
                      : launch_step(launcher, context, steps[0]));
        QCCL_TRY(launcher.flush());
        steps = steps.subspan(fold ? fold->steps : 1);
    }
    return {};
}

} // namespace qccl
