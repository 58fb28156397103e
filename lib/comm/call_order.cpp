// Implements the order of calls with one mutex and one condition variable, and the search for a
// deadlock of a process with one thread, with /proc/self/task.
#include "comm/call_order.hpp"

#include "base/system.hpp"

#include <cinttypes>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <unistd.h>

namespace qccl {

// ---- One communicator

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

uint64_t CallSequencer::next_in_turn() {
    const std::lock_guard lock(mutex_);
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

// ---- Communicators of one process

// Threads that make no calls of their own: those of GPUs' runtimes, of streams (whose calls have
// been counted when they were enqueued), of traces, and of the server of a unique id.
static bool is_known(const std::filesystem::path &task, std::string_view threads_of_gpus) {
    std::string name;
    std::getline(std::ifstream(task / "comm"), name);
    const bool is_of_gpus = !threads_of_gpus.empty() && name.starts_with(threads_of_gpus);
    return is_of_gpus || name == stream_thread_name || name == trace_thread_name ||
           name == "qccl-rendezvous";
}

static bool has_other_threads(std::string_view threads_of_gpus) {
    const std::string self = std::to_string(gettid());
    std::error_code unreadable; // then no deadlock is reported
    std::filesystem::directory_iterator tasks("/proc/self/task", unreadable);
    if (unreadable) return true;
    for (const auto &task : tasks)
        if (task.path().filename() != self && !is_known(task.path(), threads_of_gpus)) return true;
    return false;
}

std::optional<Error> SiblingComms::find_deadlock(uint32_t rank,
                                                 std::string_view threads_of_gpus) const {
    const uint64_t call = issued_[rank].call.load(std::memory_order_relaxed);
    for (uint32_t sibling = 0; sibling < issued_.size(); sibling++) {
        // An expected call has its number before it is expected no more.
        if (issued_[sibling].expected.load(std::memory_order_acquire) != 0) continue;
        if (issued_[sibling].call.load(std::memory_order_relaxed) >= call) continue;
        if (has_other_threads(threads_of_gpus)) return std::nullopt;
        return Error::make(Code::invalid_usage,
                           "call %" PRIu64 " of rank %" PRIu32 " waits for rank %" PRIu32
                           ", whose call this thread, the only one of the process, would have to "
                           "make: blocking calls on several communicators of qcclCommInitAll need "
                           "a thread each, or host streams",
                           call, rank, sibling)
            .at_rank(sibling);
    }
    return std::nullopt;
}

std::optional<Error> SiblingComms::find_deadlock(uint32_t rank, uint32_t sibling, const char *what,
                                                 std::string_view threads_of_gpus) {
    if (has_other_threads(threads_of_gpus)) return std::nullopt;
    return Error::make(Code::invalid_usage,
                       "rank %" PRIu32 " waits in %s for rank %" PRIu32
                       ", whose call this thread, the only one of the process, would have to make: "
                       "messages between communicators of qcclCommInitAll need a thread each, or "
                       "a group",
                       rank, what, sibling)
        .at_rank(sibling);
}

std::shared_ptr<SiblingComms> SiblingComms::child_comm(uint64_t number, uint32_t eldest,
                                                       uint32_t size) {
    const std::lock_guard lock(mutex_);
    std::erase_if(children_, [](const auto &each) { return each.second.expired(); });
    std::weak_ptr<SiblingComms> &held = children_[{number, eldest}];
    auto siblings = held.lock();
    if (!siblings) held = siblings = std::make_shared<SiblingComms>(size);
    return siblings;
}

} // namespace qccl
