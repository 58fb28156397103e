// Checks that each step of a rank's schedule makes sense by itself (operands of the right kinds, in
// range and of one chunk), and that all ranks agree on what must be equal. It does not follow what
// the slots hold. verify() uses it. Pure functions; any thread.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

// Checks the schedule's counts, and that they equal those of `first`, the schedule of rank 0.
// `has_chunk_per_rank`: there must be a chunk for each rank. The error is invalid_argument.
Done check_frame(const Schedule &schedule, const Schedule &first, const Team &team,
                 bool has_chunk_per_rank);
// Checks every step. The error (invalid_argument) names the rank, the step and the reason.
Done check_structure(const Schedule &schedule, Collective collective, const Team &team);

} // namespace qccl
