// The signals by which people and schedulers end a program, and the end of a rank, as events that
// one thread waits for: no handler, and whoever waits decides what is still to be done.
#pragma once

#include <chrono>

#include <signal.h>

namespace qccl::perf {

class Interrupts {
public:
    // From here on SIGINT, SIGTERM and SIGHUP, as far as they are not ignored, and SIGCHLD wait to
    // be taken, by this thread and by those that it starts.
    Interrupts();
    ~Interrupts();
    Interrupts(const Interrupts &) = delete;
    Interrupts &operator=(const Interrupts &) = delete;

    static constexpr auto for_ever = std::chrono::milliseconds::max();
    static constexpr int rank_ended = SIGCHLD;
    // The signal that has come, or 0 if none did in that time.
    int wait(std::chrono::milliseconds most) const;

    // In a forked rank: what a terminal sends to all processes at once is the launcher's business,
    // everything else the rank's own.
    void hand_to_rank() const;

private:
    sigset_t taken_{};
    sigset_t before_{};
};

// What a shell calls the exit status of a program that a signal has ended.
constexpr int status_of_signal(int signal) { return 128 + signal; }

} // namespace qccl::perf
