// Oneshot: every rank sends all it has to every other one, and each sums alone. One round, for
// small messages. Where nothing is sent twice anyway (reduce-scatter, all-gather), direct is it.
#pragma once

#include "base/types.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

Schedule all_reduce_oneshot(const Team &team);
Schedule broadcast_oneshot(const Team &team);
// Sums nothing of all ranks: nobody has the result before everybody has come.
Schedule barrier_oneshot(const Team &team);

uint32_t rounds_oneshot(Collective collective, uint32_t ranks);
double noise_oneshot(Collective collective, uint32_t ranks);

} // namespace qccl
