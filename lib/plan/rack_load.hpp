// How busy a collective keeps the lines between racks, counted on the schedules. Used by tally
// alone. Pure.
#pragma once

#include "base/result.hpp"
#include "coll/algorithm.hpp"
#include "plan/shared_links.hpp"

#include <cstddef>

namespace qccl {

// Returns what the line that is busy longest takes for each byte of a chunk. Messages between racks
// are at the outermost tier, so that they travel with the call's codec. `team`: of any rank, with
// places. Where writing all schedules takes more than `most_steps`, some ranks of each rack speak
// for the others. An error says why there is no such schedule.
Result<double> rack_load(const Algorithm &algorithm, Collective collective, const Team &team,
                         const RackLines &lines, size_t most_steps = size_t{1} << 17);

} // namespace qccl
