// Implements the order of calls with one mutex and one condition variable.
#include "api/call_sequencer.hpp"

namespace qccl {

void CallSequencer::forgo() {
    const std::lock_guard lock(mutex_);
    enqueued_.fetch_sub(1, std::memory_order_release);
    changed_.notify_all();
}

bool CallSequencer::await(uint64_t call) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || (done_ == call - 1 && may_begin()); });
    if (closed_) return false;
    runner_ = std::this_thread::get_id();
    return true;
}

std::optional<uint64_t> CallSequencer::await_next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || may_begin(); });
    if (closed_) return std::nullopt;
    runner_ = std::this_thread::get_id();
    return ++issued_;
}

void CallSequencer::finish(uint64_t call, bool was_enqueued) {
    const std::lock_guard lock(mutex_);
    done_ = call;
    if (!is_held_) runner_ = {};
    if (was_enqueued) enqueued_.fetch_sub(1, std::memory_order_release);
    changed_.notify_all();
}

void CallSequencer::await_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || is_idle(); });
}

void CallSequencer::close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return may_begin(); });
}

bool CallSequencer::hold() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || may_begin(); });
    if (closed_) return false;
    runner_ = std::this_thread::get_id();
    is_held_ = true;
    return true;
}

void CallSequencer::release() {
    const std::lock_guard lock(mutex_);
    runner_ = {};
    is_held_ = false;
    changed_.notify_all();
}

bool CallSequencer::is_closed() {
    const std::lock_guard lock(mutex_);
    return closed_;
}

bool CallSequencer::is_running_here() {
    const std::lock_guard lock(mutex_);
    return runner_ == std::this_thread::get_id();
}

} // namespace qccl
