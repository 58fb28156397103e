#include "engine/gpu_lines.hpp"

#include "base/round_up.hpp"
#include "codec/noise.hpp"
#include "engine/gpu_steps.hpp"
#include "engine/program.hpp"
#include "engine/step_trace.hpp"

#include <algorithm>
#include <array>
#include <atomic>

namespace qccl {
namespace {

using Base = LinePlace::Base;

// What the host knows of a task that it has started on a lane: when it is through.
Done await_task(Transport &transport, GpuLanes &lanes) {
    QCCL_TRY(lanes.start(0, 0));
    for (;;) {
        QCCL_TRY(const auto done, lanes.take_done(0));
        if (done) break;
        Wait wait(transport.rank(), WaitPhase::device);
        wait.is_brief = true;
        QCCL_TRY(transport.wait(wait));
    }
    transport.came();
    return {};
}

} // namespace

size_t DeviceLines::words_bytes(uint32_t ranks) {
    return round_up(2 * ranks * sizeof(uint64_t), gpu_alignment);
}

Result<std::unique_ptr<GpuLines>> GpuLines::create(const Device &device, const DeviceLines &lines) {
    std::unique_ptr<GpuLines> made(new GpuLines(lines));
    constexpr size_t bytes = most_exchanges * sizeof(uint64_t);
    QCCL_TRY(made->met_, DeviceMemory::create(device, bytes));
    QCCL_TRY(made->met_on_host_, PinnedMemory::create(device.gpu, bytes));
    return made;
}

std::byte *GpuLines::line(uint32_t rank, size_t exchange) const {
    const auto ranks = static_cast<uint32_t>(lines_.by_rank.size());
    return lines_.by_rank[rank] + DeviceLines::words_bytes(ranks) +
           turn(exchange) * lines_.line_bytes;
}

// The transport's lines carry nothing here but that this rank has come to an exchange, for those
// whose GPU did not see it. Whoever sees that a rank has come to the next one knows that it is done
// with what it read in the one before, whose line may then be written over; whether it is done
// earlier, only the end of its call says.
Done GpuLines::run(Transport &transport, GpuLanes &lanes, const Program &program,
                   const BoundCall &call, StepTrace *trace) {
    const size_t exchanges = program.bound->exchanges();
    if (trace) trace->begin_lines();
    // Ranks that make another call, or have made one before, do not meet.
    for (size_t exchange = 0; exchange < exchanges; exchange++)
        values_[exchange] = splitmix64(transport.calls_hash() ^ exchange) | 1;
    QCCL_TRY(outcome(transport.line()));
    for (size_t stage = 0;;) {
        QCCL_TRY(launch_from(stage, lanes.launches(0), program, call));
        if (trace) trace->launched();
        QCCL_TRY(await_task(transport, lanes));
        if (trace) trace->finished();
        const size_t first = stage;
        while (stage < exchanges && has_met(stage)) stage++;
        for (size_t come_to = first; come_to <= stage && come_to < exchanges; come_to++) {
            if (come_to != 0) QCCL_TRY(outcome(transport.line()));
            transport.publish(0);
            patience_.learn(come_to < stage);
        }
        if (stage == exchanges) break;
        for (uint32_t peer = 0; peer < transport.size(); peer++) {
            if (peer == transport.rank()) continue;
            QCCL_TRY(outcome(transport.await_line(peer)));
            if (trace) trace->met(peer);
        }
        stage++;
    }
    exchanges_ += exchanges;
    return {};
}

bool GpuLines::has_met(size_t exchange) const {
    const std::atomic_ref seen(*met_on_host(exchange));
    return seen.load(std::memory_order_acquire) == values_[exchange];
}

// This stage and those behind it, each of which does nothing where the GPUs have not met before it.
Done GpuLines::launch_from(size_t first, Launches &launches, const Program &program,
                           const BoundCall &call) {
    const size_t exchanges = program.bound->exchanges();
    const auto launch_all = [&]() -> Done {
        for (size_t stage = first; stage <= exchanges; stage++) {
            if (stage > first) QCCL_TRY(launches.await(met(stage - 1), values_[stage - 1]));
            QCCL_TRY(launch(stage, launches, program, call));
            if (stage < exchanges) QCCL_TRY(meet(stage, launches, program.work.team.rank));
        }
        return {};
    };
    const Done launched = launch_all();
    QCCL_TRY(launches.await(nullptr, 0));
    return launched;
}

Done GpuLines::meet(size_t exchange, Launches &launches, uint32_t rank) {
    const auto ranks = static_cast<uint32_t>(lines_.by_rank.size());
    std::array<uint64_t *, Launches::Meeting::most_others> others;
    // This rank's words are those of the others, in their order: its own is left out.
    size_t count = 0;
    for (uint32_t peer = 0; peer < ranks; peer++)
        if (peer != rank) others[count++] = word(peer, exchange, rank < peer ? rank : rank - 1);
    return launches.meet({.value = values_[exchange],
                          .looks = patience_.looks(),
                          .own_words = word(rank, exchange, 0),
                          .others = std::span(others).first(count),
                          .met = met(exchange),
                          .met_on_host = met_on_host(exchange)});
}

Done GpuLines::launch(size_t stage, Launches &launches, const Program &program,
                      const BoundCall &call) {
    const Work &work = program.work;
    const BoundProgram &bound = *program.bound;
    const uint64_t header = work.codec.is_lossless() ? 0 : header_bytes;
    // What is written is this exchange's, what is read the latest one's.
    const auto at = [&](const LinePlace &place, size_t exchange) -> std::byte * {
        switch (place.base) {
        case Base::recv: return call.recv + place.offset;
        case Base::send: return const_cast<std::byte *>(call.send) + place.offset;
        case Base::sum: return call.sum;
        case Base::line: return line(place.rank, exchange) + place.offset + header;
        case Base::none: break;
        }
        return nullptr;
    };
    TileContext context{
        .codec = &work.codec, .type = work.type, .op = work.op, .ranks = work.team.size};
    for (std::span<const LineOp> ops = bound.stages[stage]; !ops.empty();) {
        const uint32_t number = ops.front().chunk;
        const auto end =
            std::ranges::find_if(ops, [=](const LineOp &op) { return op.chunk != number; });
        const LineChunk &chunk = bound.chunks[number];
        context.layout = &chunk.layout;
        context.count = chunk.count;
        std::vector<TileStep> steps;
        for (auto op = ops.begin(); op != end; ++op) {
            if (op->what == Op::What::label || chunk.count == 0) continue;
            // A sum that has memory of its own is seen by nobody.
            const bool is_hidden = op->dst.base == Base::sum;
            steps.push_back(
                {.what = op->what,
                 .dst_type = op->dst_type,
                 .src_type = op->src_type,
                 .dst = at(op->dst, stage),
                 .src = at(op->src, stage - 1),
                 .dst_stride = is_hidden ? 0 : type_bytes(op->dst_type),
                 .src_stride = type_bytes(op->src_type),
                 .noise = {.key = noise_key(call.noise_seed, op->noise_rank, op->ordinal),
                           .call = call.number,
                           .first_index = chunk.index}});
        }
        QCCL_TRY(launch_steps(launches, context, steps));
        ops = ops.subspan(static_cast<size_t>(end - ops.begin()));
    }
    return {};
}

} // namespace qccl
