// Runs the program's callbacks: those of the futures of a process group's calls. They run on
// threads of this class, so that neither the queue of calls nor a link waits for them, and a
// callback may wait for other calls of its group.
//
// Callbacks run one after the other, in the order in which the calls are done. A callback that
// makes a call itself, or that takes long, may wait for something behind it. So it no longer holds
// up those behind it, and another thread runs them.
//
// QcclWork posts callbacks, and the end of a group waits for them. Any thread may call every
// function. Only `drain` blocks.
#pragma once

#include "core/communicator.hpp"

#include <functional>
#include <memory>

namespace qccl_torch {

class CallbackRunner {
public:
    using Task = std::function<void()>; // throws nothing

    CallbackRunner();
    CallbackRunner(const CallbackRunner &) = delete;
    CallbackRunner &operator=(const CallbackRunner &) = delete;
    // Tasks that are queued still run. A task that never returns keeps its thread.
    ~CallbackRunner();

    // Runs the task on the caller's thread if the system refuses the first thread.
    void post(Task task);
    // True in a task of this runner.
    bool is_own_thread() const;
    // In a task: those behind it no longer wait for its end. Elsewhere: does nothing.
    void let_others_pass();
    // Waits until all tasks have returned; false if that takes longer than `patience`.
    bool drain(Milliseconds patience);
    // Makes `drain` return at once, now and later.
    void stop_waiting();
    // Ends the threads that have nothing to do.
    void end_threads();

private:
    struct State;
    // A task that never returns outlives the runner, and so does its state.
    const std::shared_ptr<State> state_;
};

} // namespace qccl_torch
