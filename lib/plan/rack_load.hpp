// What a collective costs the lines between racks, counted on the schedules. Used by tally alone.
// Pure.
#pragma once

#include "base/result.hpp"
#include "coll/algorithm.hpp"
#include "plan/shared_links.hpp"

namespace qccl {

// Of the line that is busy longest: what it takes for each byte of a chunk, for what travels with
// the call's codec and with the inner tiers'.
struct RackLoad {
    double outer_ns = 0, inner_ns = 0;
};

// `team`: of any rank. Of large teams some ranks of each rack speak for the others. An error says
// why there is no such schedule.
Result<RackLoad> rack_load(const Algorithm &algorithm, Collective collective, const Team &team,
                           const RackLines &lines);

} // namespace qccl
