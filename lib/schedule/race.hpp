// Checks that the dependencies order every two steps that touch the same slot if one of them
// writes, however the engine schedules the rest. The check does not rely on how the dependencies
// were derived. verify() uses it. A pure function; any thread.
#pragma once

#include "base/result.hpp"
#include "schedule/lower.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

// The schedule must pass check_structure. The error (invalid_argument) names `rank` and the steps
// that race.
Done check_races(const Schedule &schedule, const Dependencies &dependencies, uint32_t rank);

} // namespace qccl
