// The machine that the ranks of a crew run on, as the planner sees it.
#pragma once

#include "perf/crew.hpp"
#include "perf/machine_options.hpp"

namespace qccl::perf {

// Which ranks are on one host, on which cores, and how many share a core: from what the ranks tell
// each other. All ranks call it together.
Result<Machine> machine_of(Crew &crew);

} // namespace qccl::perf
