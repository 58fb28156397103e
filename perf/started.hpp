// Finds out who has started this process, and prints a message once although a launcher has started
// several ranks that would all print it. Used by the commands of qccl-perf.
#pragma once

#include "perf/command_line.hpp"
#include "perf/perf_arguments.hpp"

namespace qccl::perf {

Started how_started();

// Returns whether a launcher's variables give this process a rank other than 0.
bool is_another_than_rank_0();

// Prints the answer once for all ranks; returns its exit status. Under mpirun one rank prints it
// after all ranks have called. Otherwise the other ranks would repeat it, or their exit would make
// mpirun end the rank that prints. Ranks that know each other only by environment variables do not
// wait: each prints a refusal, and only rank 0 prints other answers. In all other cases the same as
// tell().
int tell_once(const Answer &answer);

} // namespace qccl::perf
