// Whether each step of a rank's schedule makes sense by itself: operands of the right kinds, in
// range, and of one chunk; and whether what must be equal on all ranks is. Knows nothing of what
// the slots hold.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

// `first` is rank 0's.
Done check_frame(const Schedule &schedule, const Schedule &first, const Team &team,
                 bool has_chunk_per_rank);
Done check_structure(const Schedule &schedule, Collective collective, const Team &team);

} // namespace qccl
