// The queue's thread starts with the first task that is posted: a group whose calls all return when
// they are done needs none.
#include "core/call_queue.hpp"

namespace qccl_torch {

CallQueue::~CallQueue() { close(); }

bool CallQueue::post(Task task) {
    const std::lock_guard lock(mutex_);
    if (is_closed_) return false;
    append(std::move(task));
    return true;
}

bool CallQueue::run_or_post(Task task) {
    {
        const std::lock_guard lock(mutex_);
        if (is_closed_) return false;
        if (is_busy_ || !tasks_.empty()) {
            append(std::move(task));
            return true;
        }
        is_busy_ = true;
    }
    task();
    task = nullptr; // its tensors are free before the next task begins
    const std::lock_guard lock(mutex_);
    is_busy_ = false;
    has_changed_.notify_all();
    return true;
}

// With the lock held. If the system refuses the thread, the caller gets the exception, and the
// queue does not have the task.
void CallQueue::append(Task task) {
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
    tasks_.push_back(std::move(task));
    has_changed_.notify_all();
}

void CallQueue::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        has_changed_.wait(lock, [this] { return !is_busy_ && (!tasks_.empty() || is_closed_); });
        if (tasks_.empty()) return;
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        is_busy_ = true;
        lock.unlock();
        task();
        task = nullptr;
        lock.lock();
        is_busy_ = false;
        has_changed_.notify_all();
    }
}

bool CallQueue::drain(Milliseconds patience) {
    std::unique_lock lock(mutex_);
    return has_changed_.wait_for(lock, patience, [this] { return !is_busy_ && tasks_.empty(); });
}

void CallQueue::close() {
    {
        std::unique_lock lock(mutex_);
        is_closed_ = true;
        has_changed_.notify_all();
        has_changed_.wait(lock, [this] { return !is_busy_ && tasks_.empty(); });
    }
    if (thread_.joinable()) thread_.join();
}

} // namespace qccl_torch
