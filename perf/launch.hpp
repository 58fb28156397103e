// Starts the ranks of a run on this machine, as processes or as threads, and watches over them: if
// one fails or the user interrupts the run, the others are ended too. Each rank runs on its share
// of the processors that the launcher may run on (core_shares.hpp). Used by qccl-perf.
#pragma once

#include "perf/rank_group.hpp"

#include <functional>

namespace qccl::perf {

// The work of a rank; returns the rank's exit status.
using Body = std::function<int(RankGroup &rank_group)>;

// Both functions block until all ranks have ended. They return 0 if every rank returned 0, the
// status that a shell gives to the signal if a signal interrupted the run, and otherwise
// EXIT_FAILURE. launch_processes forks, so the process must have one thread only.
int launch_processes(uint32_t ranks, const Body &body);
int launch_threads(uint32_t ranks, const Body &body);

} // namespace qccl::perf
