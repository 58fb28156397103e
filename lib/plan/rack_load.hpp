// Computes how busy a collective keeps the links between racks, from its schedules. Used by
// step_counts alone. Pure; any thread.
#pragma once

#include "base/result.hpp"
#include "coll/algorithm.hpp"
#include "plan/shared_links.hpp"

#include <cstddef>

namespace qccl {

// Returns the time of the busiest of these links for each byte of a chunk. Messages between racks
// belong to the outermost tier, so they travel with the call's codec. `team`: of any rank, with
// places. If all schedules together have more than `most_steps` steps, some ranks of each rack are
// counted in place of all. An error says why there is no such schedule.
Result<double> rack_load(const Algorithm &algorithm, Collective collective, const Team &team,
                         const RackLines &lines, size_t most_steps = size_t{1} << 17);

} // namespace qccl
