// Oneshot: every rank sends each other rank everything that it needs, and each rank sums the
// decoded bytes of all ranks, its own included. One round, for small messages. The all-gather is
// direct's. Pure; any thread may call.
#pragma once

#include "base/types.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

Schedule all_reduce_oneshot(const Team &team);
Schedule reduce_scatter_oneshot(const Team &team);
Schedule broadcast_oneshot(const Team &team);
// An all-reduce of no values: no rank has the result before all ranks have called.
Schedule barrier_oneshot(const Team &team);

uint32_t rounds_oneshot(Collective collective, uint32_t ranks);
double noise_oneshot(Collective collective, uint32_t ranks);

} // namespace qccl
