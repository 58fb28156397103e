// Direct: every rank owns a chunk and deals with all others at once. As few bytes as the ring in
// two rounds, and the sum is in rank order with one rounding.
#pragma once

#include "base/types.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

Schedule all_reduce_direct(const Team &team);
Schedule reduce_scatter_direct(const Team &team);
Schedule all_gather_direct(const Team &team);
Schedule broadcast_direct(const Team &team);

// Every rank sends each other one its input of the chunk that the other owns.
void scatter_inputs(Schedule &schedule, const Team &team);
// Adds the chunk's contributions of all ranks in rank order: this rank's own input, and what each
// other rank sends now, which is received into wire slots. The sum is finished in the output.
void receive_and_sum(Schedule &schedule, const Team &team, uint32_t chunk, OwnInput own);

uint32_t rounds_direct(Collective collective, uint32_t ranks);
double noise_direct(Collective collective, uint32_t ranks);

} // namespace qccl
