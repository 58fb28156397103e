// Implements the search for a deadlock of a process with one thread, with /proc/self/task.
#include "api/sibling_comms.hpp"
#include "base/service_thread.hpp"

#include <cinttypes>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include <unistd.h>

namespace qccl {

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
