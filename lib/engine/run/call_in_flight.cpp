// Runs an interpreter step by step between the transport's begin and end of the call.
#include "engine/run/call_in_flight.hpp"

namespace qccl {

CallInFlight::CallInFlight(Engine &engine, const Program &program, const Call &call)
    : engine_(engine), program_(program), call_(call),
      interpreter_(engine.transport_, engine.device_, engine.memory_, engine.counters_, program_,
                   call_, engine.streams_results(program_, call_), trace_, nullptr) {}

Result<std::unique_ptr<CallInFlight>> CallInFlight::begin(Engine &engine, const Program &program,
                                                          const Call &call) {
    QCCL_TRY(engine.begin_call(program, call));
    std::unique_ptr<CallInFlight> begun(new CallInFlight(engine, program, call));
    QCCL_TRY(begun->interpreter_.begin());
    return begun;
}

Result<bool> CallInFlight::move_on() {
    QCCL_TRY(const bool has_moved, interpreter_.step());
    if (has_ended()) QCCL_TRY(engine_.end_call(program_));
    return has_moved;
}

Done CallInFlight::finish() {
    QCCL_TRY(interpreter_.go_on());
    return engine_.end_call(program_);
}

} // namespace qccl
