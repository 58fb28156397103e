// The algorithms: a table of names, of functions that write schedules, and of what is known of
// these without writing them. Knows no sizes, no codecs and no links; what an algorithm costs is
// the planner's business.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/schedule.hpp"
#include "schedule/sum_order.hpp"

#include <array>
#include <span>
#include <string_view>

namespace qccl {

using Emit = Schedule (*)(const Team &team);

struct Algorithm {
    const char *name;
    SumOrder (*order)(Collective collective, uint32_t ranks, uint32_t chunk);
    std::array<Emit, 5> emitters; // by Collective; nullptr where there is no such schedule

    // As verify counts them, for teams of any size: messages that wait for one another, and the
    // predicted NMSE of the results in units of one encode's.
    uint32_t (*rounds)(Collective collective, uint32_t ranks);
    double (*noise)(Collective collective, uint32_t ranks);

    // On every rank all that is sent is there from the start, and one exchange of lines can carry
    // it.
    bool is_one_exchange = false;
    OwnInput own = OwnInput::exact;
    // Sums travel before they are complete, so that among three or more ranks a lossless one is
    // rounded to the type on its way.
    bool sums_on_the_way = false;

    Emit emitter(Collective collective) const { return emitters[static_cast<size_t>(collective)]; }
};

std::span<const Algorithm> algorithms();
// nullptr where there is none of that name.
const Algorithm *find_algorithm(std::string_view name);
// Refuses a collective that the algorithm does not have.
Result<Schedule> emit(const Algorithm &algorithm, Collective collective, const Team &team);

} // namespace qccl
