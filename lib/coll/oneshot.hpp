// Oneshot: every rank sends all that another needs, and each sums alone what the bytes of all ranks
// decode to, its own included. One round, for small messages. An all-gather is direct's.
#pragma once

#include "base/types.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

Schedule all_reduce_oneshot(const Team &team);
Schedule reduce_scatter_oneshot(const Team &team);
Schedule broadcast_oneshot(const Team &team);
// Sums nothing of all ranks: nobody has the result before everybody has come.
Schedule barrier_oneshot(const Team &team);

uint32_t rounds_oneshot(Collective collective, uint32_t ranks);
double noise_oneshot(Collective collective, uint32_t ranks);

} // namespace qccl
