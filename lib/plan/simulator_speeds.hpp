// The simulator's own figures of machines. The cost model adds up what the busiest rank does. The
// simulator lets every rank do it, so it needs the time of each single thing. A machine's known
// figures come as the planner's CostModel: a figure that is twice the planner's default is twice
// the simulator's default here, and a latency is longer by as much. Used by the tools. Pure; any
// thread.
#pragma once

#include "plan/fabric.hpp"
#include "plan/rank_program.hpp"

namespace qccl {

// The ranks that share a host's caches and memory.
struct SimulatedHost {
    double ranks = 1;
    bool has_gpus = false; // nothing has been measured on them, so the planner's figures are taken
};

// Returns the costs of messages. The caller adds the figures of cores.
TieredRates tiered_rates(const CostModel &speeds, const SimulatedHost &host);
// Returns the speeds of computing in a call.
ComputeSpeeds compute_speeds(const CostModel &speeds, const Problem &problem, const Codec &inner,
                             const SimulatedHost &host);

} // namespace qccl
