// Recursive doubling: partners exchange everything that they have summed, so that each rank has the
// sum of two ranks, then of four, then of all. It needs few messages and the fewest rounds for
// them, but every byte travels each time. Pure; any thread may call.
#pragma once

#include "base/types.hpp"
#include "schedule/schedule.hpp"
#include "schedule/sum_order.hpp"

namespace qccl {

Schedule all_reduce_doubling(const Team &team);
// An all-reduce of no values: no rank has its result before all ranks have called.
Schedule barrier_doubling(const Team &team);

SumOrder by_doubling(Collective collective, const Team &team, uint32_t chunk);
uint32_t rounds_doubling(Collective collective, uint32_t ranks);
double noise_doubling(Collective collective, uint32_t ranks);

} // namespace qccl
