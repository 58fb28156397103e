// Whether each step of a rank's schedule makes sense by itself: operands of the right kinds, in
// range, and of one chunk. Knows nothing of what the slots hold.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

Done check_structure(const Schedule &schedule, Collective collective, const Team &team);

} // namespace qccl
