// Describes the machine that the ranks of a RankGroup run on, in the planner's terms. Used by
// qccl-perf calibrate.
#pragma once

#include "perf/rank_group.hpp"
#include "perf/machine_options.hpp"

namespace qccl::perf {

// Finds out which ranks are on one host, on which cores, and how many share a core. All ranks call
// this together; it blocks until all have exchanged their data.
Result<Machine> machine_of(RankGroup &rank_group);

} // namespace qccl::perf
