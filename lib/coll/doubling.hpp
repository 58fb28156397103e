// Doubling: partners give each other all that they have summed, and then each has what two had,
// what four had, what all have. Few messages and the fewest rounds for them; every byte travels
// each time.
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
