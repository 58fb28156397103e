// Makes calls of the codec `shared`: two calls, in which the ranks agree on the scales of blocks
// and then sum integers under these scales. On hosts both are calls on copies
// (Comm::run_with_shared_scales); on a GPU they have one turn (Comm::execute_with_shared_scales).
#include "comm/comm.hpp"
#include "device/shared_vector.hpp"

#include <memory>
#include <utility>

namespace qccl {

namespace {

// A call with shared scales, which is two calls here: the ranks agree on scales and sum integers.
struct SharedScalesCall {
    const ProgramRef program;
    const ScratchMemory::Use memory;
    const std::shared_ptr<StateUse> use; // null: the call has no state
    const SharedVector vector;
};

class ScaleCopies final : public CallCopies {
public:
    explicit ScaleCopies(std::shared_ptr<const SharedScalesCall> call) : call_(std::move(call)) {}
    void copy_in() const override { call_->vector.find_scales(); }
    void copy_out() const override {}

private:
    const std::shared_ptr<const SharedScalesCall> call_;
};

class IntegerCopies final : public CallCopies {
public:
    explicit IntegerCopies(std::shared_ptr<const SharedScalesCall> call) : call_(std::move(call)) {}
    void copy_in() const override { call_->vector.make_integers(); }
    void copy_out() const override {
        call_->vector.make_values();
        if (call_->use) call_->use->finish({});
    }

private:
    const std::shared_ptr<const SharedScalesCall> call_;
};

} // namespace

Done Comm::run_with_shared_scales(const ProgramRef &program, const Request &request,
                                  const CallStream &stream) {
    const SharedSums &sums = *program->shared;
    QCCL_TRY(const std::shared_ptr<StateUse> use, StateUse::begin_if_any(request.state));
    ScratchMemory::Use memory = scratch_memory_.begin(sums.layout.memory_bytes());
    const SharedVector vector(sums.layout, *parts_.device.kernels,
                              {.send = request.send,
                               .recv = request.recv,
                               .owed = use ? use->feedback().owed : nullptr,
                               .residual = use ? use->feedback().residual : nullptr},
                              memory.data());
    const std::shared_ptr<const SharedScalesCall> call(
        new SharedScalesCall{program, std::move(memory), use, vector});
    Request scales = request, integers = request;
    scales.send = scales.recv = vector.scales();
    integers.send = vector.integers();
    integers.recv = vector.result();
    QCCL_TRY(run_on_copies(ProgramRef(program, sums.agreement.get()), scales, stream,
                           std::make_shared<const ScaleCopies>(call)));
    return run_on_copies(program, integers, stream, std::make_shared<const IntegerCopies>(call));
}

Done Comm::execute_with_shared_scales(const Program &program, Call &call) {
    GpuSharedVector &vector = *gpu_shared_vector_;
    const CallFeedback *const feedback = std::exchange(call.feedback, nullptr);
    // Other ranks wait for a call that a pass has ended.
    const auto in_call = [&](const Done &done) -> Done {
        return done ? Done() : failed(done.error(), record_of(program, call));
    };
    QCCL_TRY(in_call(vector.begin(program.shared->layout,
                                  {.send = call.send,
                                   .recv = call.recv,
                                   .owed = feedback ? feedback->owed : nullptr,
                                   .residual = feedback ? feedback->residual : nullptr})));
    QCCL_TRY(in_call(vector.find_scales()));
    call.send = call.recv = vector.scales();
    QCCL_TRY(execute(*program.shared->agreement, call));
    call.number = sequencer_.next_in_turn();
    if (parts_.siblings) parts_.siblings->issued(team_.rank, call.number);
    QCCL_TRY(in_call(vector.make_integers()));
    call.send = vector.integers();
    call.recv = vector.result();
    QCCL_TRY(execute(program, call));
    QCCL_TRY(in_call(vector.make_values()));
    vector.end();
    return {};
}

} // namespace qccl
