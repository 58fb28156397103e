// Ring: every chunk travels from neighbour to neighbour. The fewest bytes and the most rounds.
// Neighbours are those of the team's places, so that a ring enters and leaves each host once.
#pragma once

#include "base/types.hpp"
#include "coll/phases.hpp"

namespace qccl {

extern const Phases ring_phases;

Schedule all_reduce_ring(const Team &team);
Schedule reduce_scatter_ring(const Team &team);
Schedule all_gather_ring(const Team &team);
Schedule broadcast_ring(const Team &team);

// From the position where the chunk starts on its way round to the one where it ends.
SumOrder order_ring(Collective collective, const Team &team, uint32_t chunk);
uint32_t rounds_ring(Collective collective, uint32_t ranks);
// Between hosts, on average over the ways of the chunks, rounded up.
uint32_t outer_rounds_ring(Collective collective, const Team &team);
double noise_ring(Collective collective, uint32_t ranks);

} // namespace qccl
