// The simulator's own figures of machines. The cost model adds up what the busiest rank does; the
// simulator has every rank do it, and needs what each thing takes by itself. What is known of a
// machine comes as the planner's Speeds: a figure that is twice the planner's default is twice the
// simulator's default here, and a latency as much longer. Pure; any thread.
#pragma once

#include "plan/fabric.hpp"
#include "plan/rank_program.hpp"

namespace qccl {

// Ranks that share caches and memory.
struct SimulatedHost {
    double ranks = 1;
    bool has_gpus = false; // of which nothing has been measured: the planner's figures are taken
};

// Messages. The caller adds what it knows of cores.
TieredRates tiered_rates(const Speeds &speeds, const SimulatedHost &host);
// Computing in a call.
ComputeSpeeds compute_speeds(const Speeds &speeds, const Problem &problem, const Codec &inner,
                             const SimulatedHost &host);

} // namespace qccl
