// The interpreter runs one call of a program task by task. It tries the tasks that are ready, those
// of the oldest instance first, and waits only when none can go on; a single task never waits. The
// engine uses it, on one thread at a time; run() and go_on() block in the transport, and
// begin() does unless begins_without_wait() says otherwise.
#pragma once

#include "engine/run/engine.hpp"
#include "engine/run/step_trace.hpp"
#include "engine/run/task_executor.hpp"

#include <cstdint>
#include <optional>
#include <span>

namespace qccl {

// Returns whether Interpreter::begin would wait for no other rank. Between calls.
bool begins_without_wait(const EngineMemory &memory, const Transport &transport,
                         const Program &program);

// `Trace` is NoTrace or StepTrace.
template <class Trace> class Interpreter {
public:
    // With `streams` results are stored past the cache. `exchanged`: parts that the interpreter
    // leaves out; may be null. All references must outlive the interpreter.
    Interpreter(const EngineContext &engine, const Program &program, const Call &call, bool streams,
                Trace &trace, const ExchangedParts *exchanged);

    // Runs the call to its end. An error is the transport's, the device's or that of a damaged
    // message.
    Done run();

    // The parts of run(), for a caller that does something else instead of waiting. `begin` comes
    // first. `step` does what can be done now and returns whether it has done anything; it is
    // repeated until the call has ended. `go_on` does so and waits.
    Done begin();
    Result<bool> step();
    Done go_on();
    bool has_ended() const { return has_ended_; }

private:
    Done end_meeting();
    Done prepare();
    Done cut_outbox();
    Done place_wires();
    Done await_free(uint32_t first, uint32_t slots);
    void allow_zero_copy();
    // Ends the call, unless peers still read this rank's memory. Returns whether it has ended.
    bool try_end();

    enum class Progress : uint8_t { none, started, done };

    // Returns true if a task has moved.
    Result<bool> advance_any();
    Result<bool> advance(PipelineLane &lane, bool is_oldest);
    // Begins the next instance in a lane whose last instance is done. Returns false if there is
    // none.
    bool begin_next(PipelineLane &lane);
    PipelineLane &oldest();
    Wait what_to_await();

    // Finishes the lane's tasks that the GPU has done. Returns true if there were any.
    Result<bool> take_done(PipelineLane &lane);

    // Each of these does its task, or says that the task cannot be done now.
    Result<Progress> try_task(PipelineLane &lane, uint32_t number);
    Result<bool> try_send(PipelineLane &lane, const Task &task);
    Result<bool> try_recv(PipelineLane &lane, const Task &task);
    // Checks that the two ends of the message agree on the count of its part.
    Done check_part(const PipelineLane &lane, const Step &step, const MessageView &view,
                    uint64_t expected) const;
    void merge_sampled_nmse(const MessageView &wire);
    Result<Progress> try_work(PipelineLane &lane, uint32_t number);
    Result<Progress> try_start(PipelineLane &lane, uint32_t number);
    bool may_begin(PipelineLane &lane, const Task &task);
    bool is_read_by_peers(PipelineLane &lane, const Op &op);

    void release_uses(PipelineLane &lane, const Task &task);
    // Waits until something may have changed. The wait lasts until the rank sends, receives or
    // works.
    Done wait(const Wait &what);
    // Adds the time since the last charge to the counter.
    void charge(Counter &counter);
    // Ends the wait, if there is one, and adds the time since the last charge to the time of
    // waiting.
    void charge_wait();
    // Returns the number of elements of the segment that the task works on.
    uint64_t count_of(PipelineLane &lane, const Task &task) const {
        return executor_.range(lane, task).count;
    }
    void charge_work(uint32_t stored, uint64_t count);

    Transport &transport_;
    const Device &device_;
    EngineMemory &memory_;
    Counters &counters_;
    const Program &program_;
    const Call &call_;
    Trace &trace_;
    const ExchangedParts *const exchanged_;
    TaskExecutor executor_;
    StoreChoice &store_;
    const bool progresses_between_steps_; // see Transport::progress
    std::optional<WaitScope<>> waiting_;
    std::span<PipelineLane> lanes_;
    uint64_t running_ = 0; // lanes that are not done
    bool is_meeting_ = false, has_ended_ = false;
    uint64_t ticks_ = 0; // when the time that is not charged yet began
};

extern template class Interpreter<NoTrace>;
extern template class Interpreter<StepTrace>;

} // namespace qccl
