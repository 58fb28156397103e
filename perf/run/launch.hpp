// Starts the ranks of a run on this machine, as processes or as threads, and watches over them: if
// one fails or the user interrupts the run, the others are ended too. Used by qccl-perf.
//
// Each rank runs on its share of the processors that the launcher may run on, so that ranks do not
// disturb each other. The signals that end a program, and SIGCHLD for the end of a rank, become
// events that one thread waits for. There is no signal handler; the waiting thread decides how the
// run ends. qccl-perf codec waits for signals in the same way. qccl-perf asks how much memory the
// machine has left before it allocates buffers; any thread may ask.
#pragma once

#include "perf/run/rank_group.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <signal.h>

namespace qccl::perf {

// ---- Memory of this machine

// Returns the memory, in bytes, that programs can get without swapping other programs out, or
// nothing if the system does not tell.
std::optional<uint64_t> available_memory_bytes();

// ---- Processors of this machine

// Returns the processors that this thread may run on. Processors of one core are adjacent, and so
// are those of one package. Empty if the system does not tell.
std::vector<uint32_t> processors_in_order();

// Returns the processors of rank `rank` of `ranks`. All ranks get the same number, give or take
// one. If there are more ranks than processors, each rank gets one, which it shares.
std::vector<uint32_t> share_of(const std::vector<uint32_t> &processors, uint32_t rank,
                               uint32_t ranks);

// From now on this thread, and the threads and processes that it starts, run only on these
// processors. Changes nothing if the list is empty or the system refuses.
void stay_on(const std::vector<uint32_t> &processors);

// ---- Signals

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

// ---- Launching

// The work of a rank; returns the rank's exit status.
using Body = std::function<int(RankGroup &rank_group)>;

// Both functions block until all ranks have ended. They return 0 if every rank returned 0, the
// status that a shell gives to the signal if a signal interrupted the run, and otherwise
// EXIT_FAILURE. launch_processes forks, so the process must have one thread only.
int launch_processes(uint32_t ranks, const Body &body);
int launch_threads(uint32_t ranks, const Body &body);

} // namespace qccl::perf
