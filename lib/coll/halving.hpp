// Halving: the team is split in two, again and again, and the halves exchange what they have summed
// for each other. As few bytes as the ring, in logarithmically many rounds.
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
