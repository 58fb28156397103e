// Ring: every chunk travels from neighbour to neighbour. The fewest bytes and the most rounds.
#pragma once

#include "base/types.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

Schedule all_reduce_ring(const Team &team);
Schedule reduce_scatter_ring(const Team &team);
Schedule all_gather_ring(const Team &team);
Schedule broadcast_ring(const Team &team);

uint32_t rounds_ring(Collective collective, uint32_t ranks);
double noise_ring(Collective collective, uint32_t ranks);

} // namespace qccl
