// Direct: every rank owns a chunk and deals with all others at once. As few bytes as the ring in
// two rounds, and the sum is in rank order with one rounding.
#pragma once

#include "base/types.hpp"
#include "coll/phases.hpp"

namespace qccl {

// Collects inputs alone: what has been summed before has no place in the middle of a sum.
extern const Phases direct_phases;
// The same of sums: the owner's own comes first, then those of the others in the group's order.
extern const Phases star_phases;

Schedule all_reduce_direct(const Team &team);
Schedule reduce_scatter_direct(const Team &team);
Schedule all_gather_direct(const Team &team);
Schedule broadcast_direct(const Team &team);

// Every member sends each other one its input of the chunks that the other owns.
void scatter_inputs(Schedule &schedule, const Group &group);
// Adds the chunk's contributions of all members in the group's order: this rank's own input, and
// what each other one sends now, which is received into wire slots. Where the sum is.
Slot receive_and_sum(Schedule &schedule, const Group &group, uint32_t chunk, OwnInput own);

uint32_t rounds_direct(Collective collective, uint32_t ranks);
double noise_direct(Collective collective, uint32_t ranks);

} // namespace qccl
