// A call that its thread moves on between other work, so that one thread can have calls of several
// engines in flight. The calling thread begins it; another thread may go on with it. Only `finish`
// blocks.
#pragma once

#include "engine/run/interpreter.hpp"

namespace qccl {

class CallInFlight {
public:
    // Begins the call in the transport. The engine and the program must outlive the object.
    static Result<std::unique_ptr<CallInFlight>> begin(Engine &engine, const Program &program,
                                                       const Call &call);
    CallInFlight(const CallInFlight &) = delete;

    // Does what can be done now. Returns whether it has done anything; it is repeated until the
    // call has ended. After an error the call is over, and the caller fails the transport.
    Result<bool> move_on();
    bool has_ended() const { return has_ended_; }
    // Goes on to the end of the call and waits for other ranks as Engine::run does.
    Done finish();

private:
    CallInFlight(Engine &engine, const Program &program, const Call &call);

    Engine &engine_;
    const Program &program_;
    const Call call_;
    NoTrace trace_;
    Interpreter<NoTrace> interpreter_;
    bool has_ended_ = false;
};

} // namespace qccl
