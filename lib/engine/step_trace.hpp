// What the engine tells a trace of a call's steps. The code that runs calls is compiled twice: with
// StepTrace, and with NoTrace, which leaves nothing of it, so that calls that are not traced pay
// one branch each.
#pragma once

#include "base/ticks.hpp"
#include "engine/bound.hpp"
#include "engine/program.hpp"
#include "record/wait.hpp"
#include "trace/call_tracer.hpp"
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
    void begin_lines() {}
    void line_op(const LineOp &, uint64_t) {}
    void end_work() {}
    void publish() {}
    void line(uint32_t, uint64_t) {}
    StepTrace *for_gpu() { return nullptr; }
};

// Of one call. Times are ticks; `since` is when what came before ended.
class StepTrace {
public:
    StepTrace(CallTracer &tracer, const Program &program, uint64_t call)
        : tracer_(tracer), program_(program), call_(call) {}

    // The transport has waited, and will again or not.
    void has_waited(const Wait &wait) {
        wait_ = wait;
        has_waited_ = true;
    }
    // When what is tried next began: now, if there was a wait.
    uint64_t resumed_at(uint64_t since) const { return has_waited_ ? ticks_now() : since; }
    // An event only if there was a wait.
    void wait(uint64_t since, uint64_t now);

    // The interpreter's. `began` comes from resumed_at().
    void send(uint64_t since, uint64_t began, uint64_t now, const Step &step, uint64_t segment,
              uint64_t bytes);
    void recv(uint64_t began, uint64_t now, const Step &step, uint64_t segment, uint64_t bytes);
    void work(uint64_t began, uint64_t now, const Task &task, uint64_t segment, uint64_t count) {
        add_work(TraceEvent::Kind::work, began, now, task, segment, count, 0);
    }
    void launch(uint64_t began, uint64_t now, const Task &task, uint64_t segment, uint64_t count,
                uint32_t lane);
    void done_on_device(const Task &task, uint64_t segment, uint64_t count, uint32_t lane);

    // Calls over lines, which keep no ticks of their own.
    void begin_lines() { since_ = ticks_now(); }
    void line_op(const LineOp &op, uint64_t count);
    void end_work(); // of the operations since the last event
    void publish();
    void line(uint32_t peer, uint64_t bytes);

    // Calls over lines of GPUs, where a branch costs nothing beside a launch.
    StepTrace *for_gpu() { return this; }
    void launched();         // all stages that are left
    void finished();         // what the GPU could do of them
    void met(uint32_t peer); // which the GPU did not see

private:
    void add_work(TraceEvent::Kind kind, uint64_t began, uint64_t now, const Task &task,
                  uint64_t segment, uint64_t count, uint32_t lane);
    uint64_t link(uint32_t from, uint32_t to, uint64_t segment, uint32_t ordinal) const;

    CallTracer &tracer_;
    const Program &program_;
    const uint64_t call_;
    Wait wait_;
    bool has_waited_ = false;
    // Of each lane's GPU stream: when tasks were launched, and when the latest one ended.
    struct DeviceLane {
        std::deque<uint64_t> launched;
        uint64_t ended = 0;
    };
    std::vector<DeviceLane> lanes_;
    uint64_t since_ = 0, line_values_ = 0;
    uint8_t line_work_ = 0; // since then
};

// The number of the program's shape at the tracer, which learns of it at its first call.
uint32_t traced_shape(CallTracer &tracer, const Program &program);

} // namespace qccl
