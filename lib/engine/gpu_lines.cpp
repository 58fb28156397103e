#include "engine/gpu_lines.hpp"

#include "base/round_up.hpp"
#include "codec/noise.hpp"
#include "engine/gpu_steps.hpp"
#include "engine/program.hpp"

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
    return round_up(ranks * sizeof(uint64_t), gpu_alignment);
}

Result<std::unique_ptr<GpuLines>> GpuLines::create(const Device &device, const DeviceLines &lines) {
    std::unique_ptr<GpuLines> made(new GpuLines(lines));
    QCCL_TRY(made->met_, DeviceMemory::create(device, sizeof(uint64_t)));
    QCCL_TRY(made->met_on_host_, PinnedMemory::create(device.gpu, sizeof(uint64_t)));
    return made;
}

std::byte *GpuLines::line(uint32_t rank) const {
    const auto ranks = static_cast<uint32_t>(lines_.by_rank.size());
    return lines_.by_rank[rank] + DeviceLines::words_bytes(ranks) +
           exchange_ % 2 * lines_.line_bytes;
}

// The transport's lines carry nothing here but that this rank has come, for those whose GPU did not
// see it. Whoever sees that a rank has come to the next exchange knows that it is done with this
// one, whose line it may then write over; whether it is done before, only the end of its call says.
Done GpuLines::run(Transport &transport, GpuLanes &lanes, const Program &program,
                   const BoundCall &call) {
    const BoundProgram &bound = *program.bound;
    const uint32_t rank = transport.rank();
    Launches &launches = lanes.launches(0);
    QCCL_TRY(outcome(transport.line()));
    exchange_++;
    // Ranks that mean something else do not meet.
    value_ =
        splitmix64(program.fingerprint ^ splitmix64(call.number ^ splitmix64(call.captured))) | 1;
    QCCL_TRY(launch(launches, program, call, bound.writes));
    QCCL_TRY(meet(launches, rank));
    const auto *const met = reinterpret_cast<uint64_t *>(met_.data());
    QCCL_TRY(launches.await(met, value_));
    const Done launched = launch(launches, program, call, bound.reads);
    QCCL_TRY(launches.await(nullptr, 0));
    QCCL_TRY(launched);
    QCCL_TRY(await_task(transport, lanes));
    transport.publish(0);
    const std::atomic_ref seen(*reinterpret_cast<uint64_t *>(met_on_host_.data()));
    const bool has_met = seen.load(std::memory_order_acquire) == value_;
    patience_.learn(has_met);
    if (has_met) return {};

    for (uint32_t peer = 0; peer < transport.size(); peer++)
        if (peer != rank) QCCL_TRY(outcome(transport.await_line(peer)));
    QCCL_TRY(launch(launches, program, call, bound.reads));
    return await_task(transport, lanes);
}

Done GpuLines::meet(Launches &launches, uint32_t rank) {
    const auto ranks = static_cast<uint32_t>(lines_.by_rank.size());
    std::array<uint64_t *, Launches::Meeting::most_others> others;
    // This rank's words are those of the others, in their order: its own is left out.
    size_t count = 0;
    for (uint32_t peer = 0; peer < ranks; peer++)
        if (peer != rank) others[count++] = word(peer, rank < peer ? rank : rank - 1);
    return launches.meet({.value = value_,
                          .looks = patience_.looks(),
                          .own_words = word(rank, 0),
                          .others = std::span(others).first(count),
                          .met = reinterpret_cast<uint64_t *>(met_.data()),
                          .met_on_host = reinterpret_cast<uint64_t *>(met_on_host_.data())});
}

Done GpuLines::launch(Launches &launches, const Program &program, const BoundCall &call,
                      std::span<const LineOp> ops) {
    const Work &work = program.work;
    const BoundProgram &bound = *program.bound;
    const uint64_t header = work.codec.is_lossless() ? 0 : header_bytes;
    const auto at = [&](const LinePlace &place, uint32_t rank) -> std::byte * {
        switch (place.base) {
        case Base::recv: return call.recv + place.offset;
        case Base::send: return const_cast<std::byte *>(call.send) + place.offset;
        case Base::sum: return call.sum;
        case Base::line: return line(rank) + place.offset + header;
        case Base::none: break;
        }
        return nullptr;
    };
    TileContext context{
        .codec = &work.codec, .type = work.type, .op = work.op, .ranks = work.team.size};
    while (!ops.empty()) {
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
                 .dst = at(op->dst, work.team.rank),
                 .src = at(op->src, op->src.rank),
                 .dst_stride = is_hidden ? 0 : type_bytes(op->dst_type),
                 .src_stride = type_bytes(op->src_type),
                 .noise = {.key = noise_key(call.noise_seed, work.team.rank, op->ordinal),
                           .call = call.number,
                           .first_index = chunk.index}});
        }
        QCCL_TRY(launch_steps(launches, context, steps));
        ops = ops.subspan(static_cast<size_t>(end - ops.begin()));
    }
    return {};
}

} // namespace qccl
