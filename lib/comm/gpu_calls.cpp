// Makes the calls of a communicator whose device is a GPU: on the calling thread, or when a GPU's
// stream or a replayed graph arrives at them (Comm::run_on_gpu).
#include "comm/comm.hpp"

#include "base/exception_boundary.hpp"

#include <cstring>

namespace qccl {

Done Comm::start_queue(const Settings &settings) {
    QCCL_TRY(engine_.open_gpu());
    QCCL_TRY(guards_.open_gpu());
    gpu_shared_vector_ = std::make_unique<GpuSharedVector>(parts_.device);
    const bool has_core = parts_.transport->ranks_per_core() <= 1;
    const GpuStreamQueue::QueueOptions options{
        .cpu = settings.progress_cpu,
        .spin = settings.spin.value_or(has_core ? ArrivalNaps::usual_spin : ArrivalNaps::Time{})};
    QCCL_TRY(queue_, GpuStreamQueue::create(parts_.device.gpu, options, [this] {
                 return failure().has_value() || is_closed();
             }));
    return {};
}

// The GPU reaches neither `mine` nor `all`, so the call uses pinned memory.
Result<uint64_t> Comm::gather_on_gpu(const Program &program, const void *mine, void *all,
                                     size_t bytes, std::chrono::nanoseconds timeout) {
    const size_t all_bytes = bytes * size();
    QCCL_TRY(const PinnedMemory send, PinnedMemory::create(parts_.device.gpu, bytes));
    QCCL_TRY(const PinnedMemory recv, PinnedMemory::create(parts_.device.gpu, all_bytes));
    std::memcpy(send.data(), mine, bytes);
    queue_->await_all();
    QCCL_TRY(const uint64_t call,
             take_next_turn(program, {.send = send.data(), .recv = recv.data(), .timeout = timeout},
                            0, nullptr));
    std::memcpy(all, recv.data(), all_bytes);
    return call;
}

// Calls get their numbers when they run, because a graph may replay a call at any time.
Done Comm::run_on_gpu(const ProgramRef &program, const Request &request,
                      const std::optional<GpuStream> &stream) {
    if (sequencer_.is_running_here()) return refuse_inside();
    if (stream) {
        check_priority(*stream);
        Request queued = request;
        queued.queued = queued_now();
        std::shared_ptr<const SiblingComms::Expected> expected;
        if (parts_.siblings)
            expected = std::make_shared<const SiblingComms::Expected>(parts_.siblings, team_.rank);
        return queue_->enqueue(
            *stream, [this, program, queued, expected](const Done &arrived, uint64_t captured) {
                run_arrived(*program, queued, arrived, captured);
            });
    }
    queue_->await_all();
    QCCL_TRY(const auto use, StateUse::begin_if_any(request.state));
    return outcome(take_next_turn(*program, request, 0, use.get()));
}

// In the middle of the call, the caller's stream waits for streams of the library. If the GPU
// serves both from one queue, the library's streams stand behind the caller's stream, and the call
// waits for itself.
void Comm::check_priority(GpuStream stream) {
    if (has_told_priority_) return;
    const auto is_greatest = parts_.device.gpu->has_greatest_priority(stream);
    if (!is_greatest || !*is_greatest) return; // an invalid stream is refused elsewhere
    has_told_priority_ = true;
    parts_.log->warn(
        "a stream of %s has the greatest priority, which QCCL's own streams have: where "
        "the GPU serves both from one queue, the call never ends. Create it with a "
        "lower priority",
        parts_.device.name());
}

Result<uint64_t> Comm::take_next_turn(const Program &program, const Request &request,
                                      uint64_t captured, StateUse *use) {
    const auto number = sequencer_.await_next();
    if (!number) return ended();
    Call call = request.call(*number);
    if (parts_.captures_alike) call.captured = captured;
    if (captured == 0) call.queued = request.queued; // a replay has no such time
    if (use) {
        call.noise_seed = use->seed();
        call.feedback = &use->feedback();
    }
    const Done done = exception_boundary([&]() -> Done {
        if (parts_.siblings) parts_.siblings->issued(team_.rank, *number);
        if (program.shared) return execute_with_shared_scales(program, call);
        return execute(use ? program.at_call(use->feedback().call) : program, call);
    });
    if (use) use->finish(done);
    sequencer_.finish(call.number, false);
    QCCL_TRY(done);
    return call.number;
}

void Comm::run_arrived(const Program &program, const Request &request, const Done &arrived,
                       uint64_t captured) {
    (void)exception_boundary([&]() -> Done {
        // After a failure no call is made, so that the stream proceeds even while a thread holds
        // the turns.
        const auto failure = this->failure();
        const CallRecord record{static_cast<int32_t>(program.shape.descriptor().collective), 0,
                                request.tag};
        if (!arrived || failure) return failed(failure ? failure->error : arrived.error(), record);
        const auto use = StateUse::begin_if_any(request.state);
        // The other ranks would wait for a call whose state is in use.
        if (!use) return failed(use.error(), record);
        return outcome(take_next_turn(program, request, captured, use->get()));
    });
}

} // namespace qccl
