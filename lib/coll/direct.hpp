// Direct: every rank owns a chunk and exchanges data with all other ranks at once. It sends as few
// bytes as the ring, in two rounds, and the sum is in rank order with one rounding. Pure; any
// thread may call.
#pragma once

#include "base/types.hpp"
#include "coll/phases.hpp"

namespace qccl {

// Its collect phase accepts inputs only: a partial sum cannot be added in the middle of a sum.
extern const Phases direct_phases;
// Its collect phase accepts partial sums: the owner's own part comes first, then those of the other
// members in the group's order.
extern const Phases star_phases;

Schedule all_reduce_direct(const Team &team);
Schedule reduce_scatter_direct(const Team &team);
Schedule all_gather_direct(const Team &team);
Schedule broadcast_direct(const Team &team);

// Every member sends each other member its input of the chunks that the other one owns.
void scatter_inputs(Schedule &schedule, const Group &group);
// Adds all members' contributions to the chunk in the group's order: this rank's own input, and
// what each other member sends now, which is received into wire slots. Returns the slot of the sum.
Slot receive_and_sum(Schedule &schedule, const Group &group, uint32_t chunk, OwnInput own);

uint32_t rounds_direct(Collective collective, uint32_t ranks);
double noise_direct(Collective collective, uint32_t ranks);

} // namespace qccl
