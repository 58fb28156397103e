// Whether every two steps that touch the same place, one of them writing, are ordered by the
// dependencies, whatever the engine does in between. Trusts nothing of how they were derived.
#pragma once

#include "base/result.hpp"
#include "schedule/lower.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

// `rank` is named in the error. The schedule has to pass check_structure.
Done check_races(const Schedule &schedule, const Dependencies &dependencies, uint32_t rank);

} // namespace qccl
