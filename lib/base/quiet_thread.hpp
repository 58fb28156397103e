// A thread of the library's own: takes no signals (they are the program's), bears a name that shows
// in top and gdb, and is joined when its owner goes.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <functional>
#include <thread>

namespace qccl {

// At most 15 characters, says Linux.
inline constexpr char stream_thread_name[] = "qccl-stream";
inline constexpr char trace_thread_name[] = "qccl-trace";
inline constexpr char topology_thread_name[] = "qccl-topology"; // asks hwloc
inline constexpr char rank_thread_name[] = "qccl-rank";         // while qcclCommInitAll runs

class QuietThread {
public:
    static Result<QuietThread> start(const char *name, std::function<void()> body);

    QuietThread() = default;
    QuietThread(QuietThread &&) = default;
    QuietThread &operator=(QuietThread &&) = default;
    ~QuietThread() { join(); }

    // Lets it run on this CPU alone.
    Done pin(uint64_t cpu);
    void join() {
        if (thread_.joinable()) thread_.join();
    }
    std::thread::id id() const { return thread_.get_id(); }

private:
    std::thread thread_;
};

} // namespace qccl
