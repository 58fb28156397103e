// Starts the ranks of a run on this machine, as processes or as threads, and watches over them:
// when one fails, or somebody interrupts the run, the others are ended too. Each runs on its share
// of the processors that the launcher may run on (core_shares.hpp). Knows nothing of what they do.
#pragma once

#include "perf/crew.hpp"

#include <functional>

namespace qccl::perf {

// What a rank does; returns its exit status.
using Body = std::function<int(Crew &crew)>;

// Forks: call it while the process has one thread. Returns 0 if every rank did; if a signal has
// interrupted the run, a shell's number for that.
int launch_processes(uint32_t ranks, const Body &body);
int launch_threads(uint32_t ranks, const Body &body);

} // namespace qccl::perf
