// Who has started this process, and what that means for its words: a launcher's ranks would all say
// the same.
#pragma once

#include "perf/command_line.hpp"
#include "perf/perf_arguments.hpp"

namespace qccl::perf {

Started how_started();

// By a launcher's variables.
bool is_another_than_rank_0();

// Under mpirun one rank speaks, once all have come: the others would repeat it, or mpirun end the
// one that speaks because they have ended. Ranks that only know each other by variables do not wait
// for one another to refuse a command line; of what is no refusal rank 0 speaks. Elsewhere as
// `tell`.
int tell_once(const Answer &answer);

} // namespace qccl::perf
