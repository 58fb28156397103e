// The interpreter runs one call of a program task by task: what is ready is tried, oldest instance
// first, and only when nothing moves does the rank wait. No task ever waits by itself.
#pragma once

#include "engine/engine.hpp"
#include "engine/step_trace.hpp"
#include "engine/workbench.hpp"

#include <cstdint>
#include <span>

namespace qccl {

// `Trace` is NoTrace or StepTrace.
template <class Trace> class Interpreter {
public:
    Interpreter(Transport &transport, const Device &device, EngineMemory &memory,
                Counters &counters, const Program &program, const Call &call, bool streams,
                Trace &trace);

    Done run();

private:
    Done agree();
    Done prepare();
    Done cut_outbox();
    Done place_wires();
    Done await_free(uint32_t first, uint32_t slots);
    void lend();
    Done take_back();

    enum class Progress : uint8_t { none, started, done };

    // True: something has moved.
    Result<bool> advance_any();
    Result<bool> advance(Lane &lane, bool is_oldest);
    // The next instance for a lane whose last one is done; false: there is none.
    bool begin_next(Lane &lane);
    Lane &oldest();
    Wait what_to_await();

    // What the lane's GPU has done of what was started there. True: something.
    Result<bool> take_done(Lane &lane);

    // Each does its task, or says that it cannot be done just now.
    Result<Progress> try_task(Lane &lane, uint32_t number);
    Result<bool> try_send(Lane &lane, const Task &task);
    Result<bool> try_recv(Lane &lane, const Task &task);
    void hear_of_error(const Wire &wire);
    Result<Progress> try_work(Lane &lane, uint32_t number);
    Result<Progress> try_start(Lane &lane, uint32_t number);
    bool may_begin(Lane &lane, const Task &task);
    bool is_read_by_peers(Lane &lane, const Op &op);

    void release_uses(Lane &lane, const Task &task);
    // Until something may have changed.
    Done wait(const Wait &what);
    // The time since the last charge.
    void charge(Counter &counter);
    void charge_wait();
    // Elements of the segment that the task works on.
    uint64_t count_of(Lane &lane, const Task &task) const {
        return workbench_.range(lane, {}, program_.ops[task.first].chunk).count;
    }
    void charge_work(uint32_t stored, uint64_t count);

    Transport &transport_;
    const Device &device_;
    EngineMemory &memory_;
    Counters &counters_;
    const Program &program_;
    const Call &call_;
    Trace &trace_;
    Workbench workbench_;
    StoreChoice &store_;
    const bool leaves_progress_to_receives_; // see Transport::progress
    std::span<Lane> lanes_;
    uint64_t running_ = 0; // lanes that are not through
    uint64_t ticks_ = 0;   // when the time began that is not charged yet
};

extern template class Interpreter<NoTrace>;
extern template class Interpreter<StepTrace>;

} // namespace qccl
