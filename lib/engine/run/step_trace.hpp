// Passes the steps of a call to the tracer. The code that runs calls is compiled twice: with
// StepTrace, and with NoTrace, which compiles to nothing, so that an untraced call pays one branch.
// Used on the thread that runs calls; nothing here blocks.
#pragma once

#include "base/call_descriptor.hpp"
#include "base/clock.hpp"
#include "engine/compile/fast_path.hpp"
#include "engine/compile/program.hpp"
#include "trace/recorder.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <deque>
#include <vector>

namespace qccl {

class StepTrace;

struct NoTrace {
    void has_waited(const Wait &) {}
    uint64_t resumed_at(uint64_t since) const { return since; }
    void wait(uint64_t, uint64_t) {}
    void send(uint64_t, uint64_t, uint64_t, const Step &, uint64_t, uint64_t) {}
    void recv(uint64_t, uint64_t, const Step &, uint64_t, uint64_t) {}
    void work(uint64_t, uint64_t, const Task &, uint64_t, uint64_t) {}
    void launch(uint64_t, uint64_t, const Task &, uint64_t, uint64_t, uint32_t) {}
    void done_on_device(const Task &, uint64_t, uint64_t, uint32_t) {}
    void begin_fast_path() {}
    void eager_op(const EagerOp &, uint64_t) {}
    void end_work() {}
    void eager_posted() {}
    void eager(uint32_t, uint64_t) {}
    StepTrace *for_gpu() { return nullptr; }
};

// The trace of one call. Times are in ticks; `since` is the end of what came before.
class StepTrace {
public:
    StepTrace(CallTracer &tracer, const Program &program, uint64_t call)
        : tracer_(tracer), program_(program), call_(call) {}

    // The transport has waited and may wait again; wait() adds the event.
    void has_waited(const Wait &wait) {
        wait_ = wait;
        has_waited_ = true;
    }
    // Returns when the current attempt began: now if there was a wait, else `since`.
    uint64_t resumed_at(uint64_t since) const { return has_waited_ ? ticks_now() : since; }
    // Adds an event if there was a wait.
    void wait(uint64_t since, uint64_t now);

    // Called by the interpreter. `began` comes from resumed_at().
    void send(uint64_t since, uint64_t began, uint64_t now, const Step &step, uint64_t segment,
              uint64_t bytes);
    void recv(uint64_t began, uint64_t now, const Step &step, uint64_t segment, uint64_t bytes);
    void work(uint64_t began, uint64_t now, const Task &task, uint64_t segment, uint64_t count) {
        add_work(TraceEvent::Kind::work, began, now, task, segment, count, 0);
    }
    void launch(uint64_t began, uint64_t now, const Task &task, uint64_t segment, uint64_t count,
                uint32_t lane);
    void done_on_device(const Task &task, uint64_t segment, uint64_t count, uint32_t lane);

    // Called on the fast path, which keeps no ticks of its own.
    void begin_fast_path() { since_ = ticks_now(); }
    void eager_op(const EagerOp &op, uint64_t count);
    void end_work(); // ends the operations since the last event
    void eager_posted();
    void eager(uint32_t peer, uint64_t bytes);

    // Called on the GPU fast path, where a branch costs nothing compared with a launch.
    StepTrace *for_gpu() { return this; }
    void launched();         // all stages that remained
    void finished();         // what the GPU could do of them
    void met(uint32_t peer); // a peer that the GPU missed

private:
    void add_work(TraceEvent::Kind kind, uint64_t began, uint64_t now, const Task &task,
                  uint64_t segment, uint64_t count, uint32_t lane);
    uint64_t link(uint32_t from, uint32_t to, uint64_t segment, uint32_t ordinal) const;

    CallTracer &tracer_;
    const Program &program_;
    const uint64_t call_;
    Wait wait_;
    bool has_waited_ = false;
    // State of a lane's GPU stream: when its tasks were launched, and when the latest one ended.
    struct DeviceLane {
        std::deque<uint64_t> launched;
        uint64_t ended = 0;
    };
    std::vector<DeviceLane> lanes_;
    uint64_t since_ = 0, slot_values_ = 0;
    uint8_t slot_work_ = 0; // kinds of work since `since_`
};

// Returns the number of the program's shape at the tracer. Adds the shape at its first call.
uint32_t traced_shape(CallTracer &tracer, const Program &program);

} // namespace qccl
