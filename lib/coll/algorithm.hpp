// The algorithms: a table of names and of functions that write schedules. Knows no sizes, no codecs
// and no links; what an algorithm costs is the planner's business.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/schedule.hpp"

#include <array>
#include <span>
#include <string_view>

namespace qccl {

using Emit = Schedule (*)(const Team &team);

struct Algorithm {
    const char *name;
    SumOrder order;
    std::array<Emit, 5> emitters; // by Collective; nullptr where there is no such schedule

    Emit emitter(Collective collective) const { return emitters[static_cast<size_t>(collective)]; }
};

std::span<const Algorithm> algorithms();
// nullptr where there is none of that name.
const Algorithm *find_algorithm(std::string_view name);
// Refuses a collective that the algorithm does not have, naming those that do.
Result<Schedule> emit(const Algorithm &algorithm, Collective collective, const Team &team);

} // namespace qccl
