// Makes the calls of a process group one after the other, in the order in which the program made
// them. A thread of the queue's own makes them, or the caller's thread if the caller waits for the
// call anyway and no other call is ahead.
//
// Any thread may use a queue. `post` does not block. Tasks run no code of the program: its
// callbacks are the CallbackRunner's, so a callback may wait for a call that is still in the queue.
#pragma once

#include "core/communicator.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace qccl_torch {

class CallQueue {
public:
    using Task = std::function<void()>; // throws nothing

    CallQueue() = default;
    CallQueue(const CallQueue &) = delete;
    CallQueue &operator=(const CallQueue &) = delete;
    ~CallQueue();

    // Puts a task into the queue. Returns false if the queue is closed: the task will not run. So
    // it is, too, after std::system_error: the system has refused the queue's thread.
    bool post(Task task);
    // As `post`, but runs the task before it returns if the queue is empty.
    bool run_or_post(Task task);
    // Waits until all tasks are done; returns false if that takes longer than `patience`.
    bool drain(Milliseconds patience);
    // Takes no more tasks and waits for those that it has.
    void close();

private:
    void work();
    void append(Task task);

    std::mutex mutex_;
    std::condition_variable has_changed_;
    std::deque<Task> tasks_;
    bool is_busy_ = false; // a task runs, on whichever thread
    bool is_closed_ = false;
    std::thread thread_;
};

} // namespace qccl_torch
