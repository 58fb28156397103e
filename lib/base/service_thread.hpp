// A thread of the library itself. It takes no signals (they belong to the program's own threads),
// has a name that top and gdb show, and is joined when its owner is destroyed. SignalBlocker blocks
// all signals of the current thread while it lives, so that threads started meanwhile never take
// any.
#pragma once

#include "base/result.hpp"

#include <csignal>
#include <cstdint>
#include <functional>
#include <thread>

#include <pthread.h>

namespace qccl {

// ---- Signals

class SignalBlocker {
public:
    // A new thread inherits the mask, so no signal can reach the thread before it blocks signals
    // itself.
    SignalBlocker() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalBlocker() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalBlocker(const SignalBlocker &) = delete;
    SignalBlocker &operator=(const SignalBlocker &) = delete;

private:
    sigset_t before_;
};

// ---- Threads

// Linux allows at most 15 characters.
inline constexpr char stream_thread_name[] = "qccl-stream";
inline constexpr char trace_thread_name[] = "qccl-trace";
inline constexpr char topology_thread_name[] = "qccl-topology"; // runs hwloc
inline constexpr char rank_thread_name[] = "qccl-rank";         // while qcclCommInitAll runs

class ServiceThread {
public:
    static Result<ServiceThread> start(const char *name, std::function<void()> body);

    ServiceThread() = default;
    ServiceThread(ServiceThread &&) = default;
    ServiceThread &operator=(ServiceThread &&) = default;
    ~ServiceThread() { join(); }

    // Restricts the thread to this CPU. Returns invalid_argument if the process cannot run there.
    Done pin(uint64_t cpu);
    void join() {
        if (thread_.joinable()) thread_.join();
    }
    std::thread::id id() const { return thread_.get_id(); }

private:
    std::thread thread_;
};

} // namespace qccl
