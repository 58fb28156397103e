// Runs an interpreter step by step between the transport's begin and end of the call.
#include "engine/run/call_in_flight.hpp"

namespace qccl {

CallInFlight::CallInFlight(Engine &engine, const Program &program, const Call &call)
    : engine_(engine), program_(program), call_(call),
      interpreter_(engine.context(), program_, call_, engine.streams_results(program_, call_),
                   trace_, nullptr) {}

Result<std::unique_ptr<CallInFlight>> CallInFlight::begin(Engine &engine, const Program &program,
                                                          const Call &call) {
    QCCL_TRY(engine.begin_call(program, call));
    std::unique_ptr<CallInFlight> begun(new CallInFlight(engine, program, call));
    QCCL_TRY(begun->interpreter_.begin());
    return begun;
}

// Ends the call only when its messages have left for other hosts: the peer may wait for a message
// that its own thread moves on meanwhile.
Result<bool> CallInFlight::move_on() {
    bool has_moved = false;
    if (!interpreter_.has_ended()) {
        QCCL_TRY(has_moved, interpreter_.step());
    }
    if (interpreter_.has_ended() && engine_.transport_.can_end()) {
        QCCL_TRY(engine_.end_call(program_));
        has_ended_ = true;
    } else if (!has_moved) {
        engine_.transport_.progress();
    }
    return has_moved || has_ended_;
}

Done CallInFlight::finish() {
    if (!interpreter_.has_ended()) QCCL_TRY(interpreter_.go_on());
    return engine_.end_call(program_);
}

} // namespace qccl
