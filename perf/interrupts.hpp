// Turns the signals that end a program, and SIGCHLD for the end of a rank, into events that one
// thread waits for. There is no signal handler; the waiting thread decides how the run ends. Used
// by the launcher and by qccl-perf codec.
#pragma once

#include <chrono>

#include <signal.h>

namespace qccl::perf {

class Interrupts {
public:
    // Blocks SIGINT, SIGTERM and SIGHUP, unless they are ignored, and SIGCHLD, in this thread and
    // in threads that it starts later, so that they stay pending until wait() takes them.
    Interrupts();
    ~Interrupts();
    Interrupts(const Interrupts &) = delete;
    Interrupts &operator=(const Interrupts &) = delete;

    static constexpr auto for_ever = std::chrono::milliseconds::max();
    static constexpr int rank_ended = SIGCHLD;
    // Waits at most that long. Returns the signal that arrived, or 0 if none did.
    int wait(std::chrono::milliseconds most) const;

    // Called in a forked rank: keeps SIGINT and SIGHUP blocked, because a terminal sends them to
    // all processes and the launcher handles them. All other signals are restored for the rank.
    void hand_to_rank() const;

private:
    sigset_t taken_{};
    sigset_t before_{};
};

// Returns the exit status that a shell gives to a program ended by this signal.
constexpr int status_of_signal(int signal) { return 128 + signal; }

} // namespace qccl::perf
