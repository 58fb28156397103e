// Makes calls of the codec `shared` (Comm::run_with_shared_scales): two calls on copies, in which
// the ranks agree on the scales of blocks and then sum integers under these scales.
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
                               .residual = use ? use->feedback().residual : nullptr,
                               .memory = memory.data()});
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

} // namespace qccl
