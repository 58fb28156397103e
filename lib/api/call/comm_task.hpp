// Work on a communicator that goes on in a thread of the library after its C function has returned
// qcclInProgress: the creation of a communicator, a split, a finalize. The handle of a communicator
// keeps the task that makes it, and the one that is inside it. Any thread but the task's own may
// call await; it blocks until the work is over. Nothing else here blocks.
#pragma once

#include "base/clock.hpp"
#include "base/exception_boundary.hpp"
#include "base/result.hpp"
#include "base/system.hpp"

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace qccl {

class CommTask {
public:
    using Body = std::function<Done(CommTask &)>;

    CommTask() = default;
    CommTask(const CommTask &) = delete;
    ~CommTask() = default;

    // Called once. After an error the task is over without having begun.
    Done start(Body body) {
        const std::lock_guard lock(joining_);
        auto thread = ServiceThread::start(
            comm_thread_name, [this, work = std::move(body)]() mutable { run(std::move(work)); });
        if (!thread) return thread.error();
        thread_ = std::move(*thread);
        return {};
    }
    bool is_done() const { return is_done_.load(std::memory_order_acquire); }
    // Requires is_done().
    const Done &result() const { return result_; }
    bool is_this_thread() const { return runner_.load() == std::this_thread::get_id(); }
    void await() {
        const std::lock_guard lock(joining_);
        thread_.join();
    }

    // Asks the task to give up soon. A task that is about to succeed may still do so.
    void cancel() {
        const std::lock_guard lock(mutex_);
        is_cancelled_.store(true, std::memory_order_relaxed);
        if (interrupt_) interrupt_();
    }
    bool is_cancelled() const { return is_cancelled_.load(std::memory_order_relaxed); }
    // Called by the task: runs `wait`, which does not ask is_cancelled(). `interrupt` ends it; any
    // thread may call it, once or more, until `wait` has returned.
    template <class Wait> auto interruptible(std::function<void()> interrupt, Wait &&wait) {
        set_interrupt(std::move(interrupt));
        auto waited = exception_boundary(std::forward<Wait>(wait));
        set_interrupt(nullptr);
        return waited;
    }

private:
    void run(Body body) {
        runner_.store(std::this_thread::get_id());
        result_ = exception_boundary([&] { return body(*this); });
        body = nullptr; // before other threads go on
        is_done_.store(true, std::memory_order_release);
    }
    void set_interrupt(std::function<void()> interrupt) {
        const std::lock_guard lock(mutex_);
        interrupt_ = std::move(interrupt);
        if (interrupt_ && is_cancelled()) interrupt_();
    }

    std::atomic<bool> is_done_{false}, is_cancelled_{false};
    std::atomic<std::thread::id> runner_{};
    Done result_{}; // written before is_done_
    std::mutex mutex_;
    std::function<void()> interrupt_;
    std::mutex joining_;
    ServiceThread thread_; // last: it uses the others
};

// What a wait calls at intervals. Null: the wait belongs to no task, and the check is empty.
inline CancelCheck cancel_check_of(const CommTask *task) {
    if (!task) return {};
    return [task]() -> Done {
        if (!task->is_cancelled()) return {};
        return Error::make(Code::revoked, "the creation was aborted");
    };
}

// The outcome of a C function whose work a task goes on with.
inline Error still_going() {
    return Error::make(Code::in_progress, "qcclCommGetAsyncError tells when it is done");
}

} // namespace qccl
