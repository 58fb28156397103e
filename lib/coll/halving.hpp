// Recursive halving: the team is split in two, again and again, and each half sends the other one
// the partial sums of its chunks. It sends as few bytes as the ring, in logarithmically many
// rounds. Pure; any thread may call.
#pragma once

#include "base/types.hpp"
#include "coll/phases.hpp"

namespace qccl {

extern const Phases halving_phases;

Schedule all_reduce_halving(const Team &team);
Schedule reduce_scatter_halving(const Team &team);
Schedule all_gather_halving(const Team &team);

SumOrder by_halving(Collective collective, uint32_t ranks, uint32_t chunk);
uint32_t rounds_halving(Collective collective, uint32_t ranks);
double noise_halving(Collective collective, uint32_t ranks);

} // namespace qccl
