// Starts the stages of a fast-path call on a GPU with barriers between them, and waits on the
// host if a barrier fails.
#include "engine/run/gpu_fast_path.hpp"

#include "base/types.hpp"
#include "codec/codec.hpp"
#include "engine/compile/program.hpp"
#include "engine/gpu/gpu_lanes.hpp"
#include "engine/run/fast_path_run.hpp"
#include "engine/run/step_trace.hpp"

#include <algorithm>
#include <array>
#include <atomic>

namespace qccl {
namespace {

using Base = EagerOperand::Base;

// Waits until everything that the lane has launched is done.
Done await_task(Transport &transport, GpuLanes &lanes) {
    QCCL_TRY(lanes.start(0, 0));
    for (const WaitScope waiting(transport);;) {
        QCCL_TRY(const auto done, lanes.take_done(0));
        if (done) return {};
        Wait wait(transport.rank(), WaitPhase::device);
        wait.is_brief = true;
        QCCL_TRY(transport.wait(wait));
    }
}

} // namespace

size_t DeviceEagerSlots::words_bytes(uint32_t ranks) {
    return round_up(2 * ranks * sizeof(uint64_t), gpu_alignment);
}

Result<std::unique_ptr<GpuFastPath>> GpuFastPath::create(const Device &device,
                                                         const DeviceEagerSlots &slots) {
    std::unique_ptr<GpuFastPath> made(new GpuFastPath(slots));
    constexpr size_t bytes = most_exchanges * sizeof(uint64_t);
    QCCL_TRY(made->met_, DeviceMemory::create(device, bytes));
    QCCL_TRY(made->met_on_host_, PinnedMemory::create(device.gpu, bytes));
    return made;
}

std::byte *GpuFastPath::eager_slot(uint32_t rank, size_t exchange) const {
    const auto ranks = static_cast<uint32_t>(slots_.by_rank.size());
    return slots_.by_rank[rank] + DeviceEagerSlots::words_bytes(ranks) +
           turn(exchange) * slots_.eager_slot_bytes;
}

// The transport's eager slots carry no data here: an empty slot that is posted says that this rank
// has reached an exchange, for peers whose GPU missed it in the barrier. A rank that has reached
// the next exchange is done with what it read in the exchange before, so the eager slots of that
// exchange may be overwritten. Only the end of the rank's call can say so earlier.
Done GpuFastPath::run(Transport &transport, GpuLanes &lanes, const Program &program,
                      const FastPathCall &call, StepTrace *trace) {
    const size_t exchanges = program.fast_path->exchanges();
    if (trace) trace->begin_fast_path();
    // The values of ranks whose calls differ, or have differed before, are different, so their
    // barriers fail.
    for (size_t exchange = 0; exchange < exchanges; exchange++)
        values_[exchange] = splitmix64(transport.calls_hash() ^ exchange) | 1;
    QCCL_TRY(transport.await_latest_exchange());
    for (size_t stage = 0;;) {
        QCCL_TRY(launch_from(stage, lanes.launcher(0), program, call));
        if (trace) trace->launched();
        QCCL_TRY(await_task(transport, lanes));
        if (trace) trace->finished();
        const size_t first = stage;
        while (stage < exchanges && has_passed_barrier(stage)) stage++;
        for (size_t come_to = first; come_to <= stage && come_to < exchanges; come_to++) {
            if (come_to != 0) QCCL_TRY(transport.await_latest_exchange());
            transport.post_eager(0);
            spin_budget_.learn(come_to < stage);
        }
        if (stage == exchanges) break;
        for (uint32_t peer = 0; peer < transport.size(); peer++) {
            if (peer == transport.rank()) continue;
            QCCL_TRY(outcome(transport.await_eager(peer)));
            if (trace) trace->met(peer);
        }
        stage++;
    }
    exchanges_ += exchanges;
    return {};
}

bool GpuFastPath::has_passed_barrier(size_t exchange) const {
    const std::atomic_ref seen(*met_on_host(exchange));
    return seen.load(std::memory_order_acquire) == values_[exchange];
}

// Starts stage `first` and all later stages. A later stage does nothing if the GPUs' barrier
// before it has failed.
Done GpuFastPath::launch_from(size_t first, KernelLauncher &launcher, const Program &program,
                              const FastPathCall &call) {
    const size_t exchanges = program.fast_path->exchanges();
    const auto launch_all = [&]() -> Done {
        for (size_t stage = first; stage <= exchanges; stage++) {
            if (stage > first) QCCL_TRY(launcher.await(met(stage - 1), values_[stage - 1]));
            QCCL_TRY(launch(stage, launcher, program, call));
            if (stage < exchanges)
                QCCL_TRY(launch_barrier(stage, launcher, program.work.team.rank));
        }
        return {};
    };
    const Done launched = launch_all();
    QCCL_TRY(launcher.await(nullptr, 0));
    return launched;
}

Done GpuFastPath::launch_barrier(size_t exchange, KernelLauncher &launcher, uint32_t rank) {
    const auto ranks = static_cast<uint32_t>(slots_.by_rank.size());
    std::array<uint64_t *, KernelLauncher::Barrier::most_others> others;
    // A rank has one word for each other rank, in rank order; there is no word for the rank itself.
    size_t count = 0;
    for (uint32_t peer = 0; peer < ranks; peer++)
        if (peer != rank) others[count++] = word(peer, exchange, rank < peer ? rank : rank - 1);
    return launcher.launch_barrier({.value = values_[exchange],
                                    .looks = spin_budget_.looks(),
                                    .own_words = word(rank, exchange, 0),
                                    .others = std::span(others).first(count),
                                    .met = met(exchange),
                                    .met_on_host = met_on_host(exchange)});
}

std::byte *GpuFastPath::address(const EagerOperand &place, size_t exchange, const Program &program,
                                const FastPathCall &call) const {
    switch (place.base) {
    case Base::recv: return call.recv + place.offset;
    case Base::send: return const_cast<std::byte *>(call.send) + place.offset;
    case Base::sum: return call.sum;
    case Base::eager_slot:
    case Base::own_slot:
        return eager_slot(place.rank, exchange) + place.offset + program.fast_path->header;
    case Base::decoded: return call.decoded;
    case Base::residual: return call.residual + place.offset;
    case Base::none: break;
    }
    return nullptr;
}

TileStep GpuFastPath::step_of(const EagerOp &op, size_t stage, uint64_t first_index,
                              const Program &program, const FastPathCall &call) const {
    // A stage writes the eager slot of its own exchange, and reads the slots of the exchange
    // before, but what it has just encoded in its own slot.
    const size_t exchange_read = op.src.base == Base::own_slot ? stage : stage - 1;
    // Only these launches read a sum that has its own memory. Stride 0 lets it stay in registers.
    const bool is_hidden = op.dst.base == Base::sum;
    return {.what = op.what,
            .dst_type = op.dst_type,
            .src_type = op.src_type,
            .dst = address(op.dst, stage, program, call),
            .src = address(op.src, exchange_read, program, call),
            .dst_stride = is_hidden ? 0 : type_bytes(op.dst_type),
            .src_stride = type_bytes(op.src_type),
            .noise = {.key = noise_key(call.noise_seed, op.noise_rank, op.ordinal),
                      .call = call.noise_call,
                      .first_index = first_index},
            .decoded = call.decoded,
            .factor = op.is_divided ? program.work.team.size : 1,
            .velocity = call.velocity};
}

Done GpuFastPath::launch(size_t stage, KernelLauncher &launcher, const Program &program,
                         const FastPathCall &call) {
    const Work &work = program.work;
    const FastPathProgram &bound = *program.fast_path;
    TileContext context{
        .codec = &work.codec, .type = work.type, .op = work.op, .ranks = work.team.size};
    for (std::span<const EagerOp> ops = bound.stages[stage]; !ops.empty();) {
        const uint32_t number = ops.front().chunk;
        const auto end =
            std::ranges::find_if(ops, [=](const EagerOp &op) { return op.chunk != number; });
        const EagerChunk &chunk = bound.chunks[number];
        context.layout = &chunk.layout;
        context.count = chunk.count;
        std::vector<TileStep> steps;
        for (auto op = ops.begin(); op != end; ++op)
            if (op->what != Op::What::write_header && chunk.count != 0)
                steps.push_back(step_of(*op, stage, chunk.index, program, call));
        QCCL_TRY(launch_steps(launcher, context, steps));
        ops = ops.subspan(static_cast<size_t>(end - ops.begin()));
    }
    return {};
}

} // namespace qccl
