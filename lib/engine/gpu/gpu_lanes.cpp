// Creates the lanes' streams and events, and follows tasks by their events. Recognizes a sum in a
// run's steps: its first store, the additions, an optional division, and the step that takes the
// sum. Each such sum, or else each operation, becomes a call of the launcher.
#include "engine/gpu/gpu_lanes.hpp"

#include <algorithm>

namespace qccl {

Done GpuLanes::open() {
    while (streams_.size() < streams_kept) {
        QCCL_TRY(OwnStream stream, OwnStream::create(gpu_, StreamPriority::greatest));
        streams_.push_back(std::move(stream));
    }
    return {};
}

Done GpuLanes::prepare(uint32_t lanes) {
    QCCL_TRY(open());
    while (lanes_.size() < lanes) {
        auto lane =
            std::make_unique<Lane>(launch, MostBlocks::of_gpu(gpu_->traits().multiprocessors));
        lane->gpu = gpu_.get();
        lane->stream = streams_[lanes_.size() % streams_kept].get();
        while (lane->events.size() < most_under_way) {
            QCCL_TRY(GpuEvent event, GpuEvent::create(gpu_));
            lane->events.push_back(std::move(event));
        }
        lanes_.push_back(std::move(lane));
    }
    return {};
}

Done GpuLanes::launch(void *lane, KernelId kernel, unsigned blocks, const Batch &batch) {
    const Lane &own = *static_cast<Lane *>(lane);
    return own.gpu->launch(own.stream, kernel, blocks, batch);
}

Done GpuLanes::start(uint32_t number, uint32_t task) {
    Lane &lane = *lanes_[number];
    QCCL_TRY(lane.events[lane.started % most_under_way].set(lane.stream));
    lane.started++;
    lane.under_way.push_back(task);
    under_way_++;
    return {};
}

Result<std::optional<uint32_t>> GpuLanes::take_done(uint32_t number) {
    Lane &lane = *lanes_[number];
    if (lane.under_way.empty()) return std::optional<uint32_t>();
    QCCL_TRY(const bool has_passed, lane.events[lane.done % most_under_way].has_passed());
    if (!has_passed) return std::optional<uint32_t>();
    const uint32_t task = lane.under_way.front();
    lane.under_way.pop_front();
    lane.done++;
    under_way_--;
    return std::optional(task);
}

uint64_t GpuLanes::moved_bytes() const {
    uint64_t bytes = 0;
    for (const auto &lane : lanes_) bytes += lane->launcher.moved_bytes();
    return bytes;
}

// Errors of the streams are ignored: the caller has an error already, or there is no caller to
// tell.
void GpuLanes::drain() {
    for (const auto &lane : lanes_) {
        (void)gpu_->synchronize(lane->stream);
        lane->done += lane->under_way.size();
        lane->under_way.clear();
    }
    under_way_ = 0;
}

// ---- Folds

namespace {

bool is_coded(const TileStep &step) {
    return step.what == Op::What::decode || step.what == Op::What::decode_add ||
           step.what == Op::What::encode;
}

// Returns true if the step starts a new accumulator.
bool begins_sum(const TileContext &context, const TileStep &step) {
    const bool stores = step.what == Op::What::copy || step.what == Op::What::decode;
    return stores && step.dst_type == accumulator_of(context.type);
}

bool adds_to(const TileStep &step, const std::byte *sum) {
    return step.dst == sum && (step.what == Op::What::reduce || step.what == Op::What::decode_add);
}

bool takes(const TileStep &step, const std::byte *sum) {
    return step.src == sum && (step.what == Op::What::copy || step.what == Op::What::encode);
}

// Returns true if all of the step's values have codes, or none has.
bool is_uniform(const TileContext &context, const TileStep &step) {
    if (!is_coded(step)) return true;
    const ChunkRange chunk = chunk_of(context, step);
    return chunk.codec->is_plain() || chunk.layout->coded == context.count;
}

// Redirects later readers of the sum to what the sink stored, so that the sum needs no memory.
// Returns false, and changes nothing, if a later step needs the sum itself or would miss what the
// sink's store lost.
bool release_sum(const TileStep &sink, const std::byte *sum, std::span<TileStep> later) {
    const auto is_sum_read = [=](const TileStep &step) {
        return step.src == sum || (step.dst == sum && step.what != Op::What::encode);
    };
    const auto may_read_sink = [&](const TileStep &step) {
        return step.what == Op::What::copy && step.dst != sum && sink.what == Op::What::copy &&
               step.dst_type == sink.dst_type;
    };
    // A later sum may use the same tile, so the search ends where it begins.
    const auto end = std::ranges::find_if(later, [=](const TileStep &step) {
        return step.dst == sum && (step.what == Op::What::copy || step.what == Op::What::decode);
    });
    const std::span<TileStep> readers(later.begin(), end);
    if (!std::ranges::all_of(readers, [&](const TileStep &step) {
            return !is_sum_read(step) || may_read_sink(step);
        }))
        return false;
    for (TileStep &step : readers) {
        if (step.src != sum) continue;
        step.src = sink.dst;
        step.src_type = sink.dst_type;
        step.src_stride = sink.dst_stride;
    }
    return true;
}

} // namespace

ChunkRange chunk_of(const TileContext &context, const TileStep &step) {
    return {.codec = step.codec ? step.codec : context.codec,
            .layout = step.layout ? step.layout : context.layout,
            .type = context.type,
            .whole = context.count,
            .begin = 0,
            .count = context.count,
            .noise = step.noise};
}

std::optional<FoundFold> find_fold(const TileContext &context, std::span<TileStep> steps) {
    if (!begins_sum(context, steps[0])) return std::nullopt;
    const std::byte *const sum = steps[0].dst;
    FoundFold fold;
    size_t at = 0;
    const auto is_source = [&] { return at == 0 || adds_to(steps[at], sum); };
    for (; at < steps.size() && is_source(); at++) {
        if (fold.source_count == fold.sources.size() || !is_uniform(context, steps[at]))
            return std::nullopt;
        fold.sources[fold.source_count++] = &steps[at];
    }
    if (at < steps.size() && steps[at].what == Op::What::divide && steps[at].dst == sum) {
        fold.divides = true;
        at++;
    }
    fold.steps = at;
    const bool is_tile = steps[0].dst_stride == 0;
    if (!is_tile) return at > 1 ? std::optional(fold) : std::nullopt;
    if (at == steps.size() || !takes(steps[at], sum) || !is_uniform(context, steps[at]))
        return std::nullopt;
    fold.sink = &steps[at];
    fold.steps++;
    if (fold.sink->what == Op::What::encode) {
        const ChunkRange chunk = chunk_of(context, *fold.sink);
        const auto is_dithered = [&](const TileStep *step) {
            if (!is_coded(*step)) return false;
            const Codec &codec = *chunk_of(context, *step).codec;
            return codec.dithers() || codec.rotation != 0;
        };
        const bool has_dither = std::any_of(fold.sources.begin(),
                                            fold.sources.begin() + fold.source_count, is_dithered);
        if (!KernelLauncher::can_fuse(*chunk.codec, chunk.type, has_dither)) return std::nullopt;
    }
    if (!release_sum(*fold.sink, sum, steps.subspan(fold.steps))) return std::nullopt;
    return fold;
}

// ---- Calls of the launcher

static Done launch_product(KernelLauncher &launcher, const TileContext &context,
                           const TileStep &step) {
    const DataType sum_type = accumulator_of(step.src_type);
    const KernelLauncher::Source sources[] = {{.type = step.src_type, .at = step.src},
                                              {.type = sum_type, .at = context.factors}};
    return launcher.fold({.op = RedOp::prod, .sources = sources, .count = context.count}, sum_type,
                         step.dst_type, step.dst);
}

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
    case Op::What::multiply: return launch_product(launcher, context, step);
    case Op::What::divide: return launcher.divide(sum_type, step.dst, context.count, context.ranks);
    case Op::What::encode:
        return launcher.encode(chunk, step.noise, step.src_type, step.src, step.dst);
    case Op::What::decode: return launcher.decode(chunk, step.src, step.dst_type, step.dst);
    case Op::What::decode_add: return launcher.decode_add(chunk, context.op, step.src, step.dst);
    case Op::What::keep_error:
        return launcher.keep_error(sum_type, step.dst, step.src, step.decoded, context.count,
                                   step.factor,
                                   step.velocity != 0 ? step.dst + step.velocity : nullptr);
    case Op::What::begin_exact:
    case Op::What::add_exact:
    case Op::What::round_exact:
        return Error::make(Code::internal_error, "an exact sum in parts, on a GPU");
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

// Starts the exact sum at the front of `steps`, whose accumulator is in registers. Returns the
// number of its steps.
static Result<size_t> launch_exact(KernelLauncher &launcher, const TileContext &context,
                                   std::span<const TileStep> steps) {
    std::array<KernelLauncher::Source, KernelLauncher::most_sources> sources;
    size_t count = 0, end = 0;
    for (; end < steps.size() && steps[end].what != Op::What::round_exact; end++) {
        const TileStep &step = steps[end];
        if (step.what == Op::What::multiply) { // a summand, which the next step adds
            QCCL_TRY(launch_product(launcher, context, step));
            QCCL_TRY(launcher.flush());
            continue;
        }
        const bool adds = step.what == (count == 0 ? Op::What::begin_exact : Op::What::add_exact);
        if (!adds || count == sources.size()) break;
        sources[count++] = {.type = step.src_type, .at = step.src};
    }
    const size_t summed = end;
    for (; end < steps.size() && steps[end].what == Op::What::round_exact; end++)
        QCCL_TRY(launcher.fold_exact({.divisor = steps[end].factor,
                                      .sources = {sources.data(), count},
                                      .count = context.count},
                                     steps[end].dst_type, steps[end].dst));
    if (end == summed)
        return Error::make(Code::internal_error,
                           "an exact sum of more than %zu summands, or in parts, on a GPU", count);
    return end;
}

// Each step reads what the step before wrote, so they cannot share a launch.
Done launch_steps(KernelLauncher &launcher, const TileContext &context, std::span<TileStep> steps) {
    while (!steps.empty()) {
        if (steps[0].what == Op::What::begin_exact) {
            QCCL_TRY(const size_t launched, launch_exact(launcher, context, steps));
            QCCL_TRY(launcher.flush());
            steps = steps.subspan(launched);
            continue;
        }
        const auto fold = find_fold(context, steps);
        QCCL_TRY(fold ? launch_fold(launcher, context, *fold)
                      : launch_step(launcher, context, steps[0]));
        QCCL_TRY(launcher.flush());
        steps = steps.subspan(fold ? fold->steps : 1);
    }
    return {};
}

} // namespace qccl
