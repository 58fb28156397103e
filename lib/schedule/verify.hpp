// Proves that the schedules of all ranks together are right, by running them on expressions instead
// of values. Knows the contract's orders of sums, and neither algorithms nor codecs.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/schedule.hpp"
#include "schedule/sum_order.hpp"

#include <cstdint>
#include <functional>

namespace qccl {

struct Theorem {
    Collective collective = Collective::all_reduce;
    OrderOf order = by_rank;
    uint32_t ranks = 1;
    uint32_t root = 0;
    OwnInput own = OwnInput::exact; // sums of more than one rank
};

// What the proof has counted on the way.
struct Verified {
    uint64_t steps = 0;
    uint64_t messages = 0;
    uint32_t rounds = 0; // the longest chain of messages that wait for one another
    // Predicted NMSE of a result, in units of one encode's: of the outermost tier's, and of those
    // below.
    double noise = 0, inner_noise = 0;
};

// Each rank's schedule, as author wrote it or placed, joined or not; asked for once, in order.
using ScheduleOf = std::function<Result<Schedule>(uint32_t rank)>;

// Proves that
// - every output of every rank holds the contributions of all ranks (of a gather or a broadcast:
//   the source's), each once, summed in the contract's order, the adding rank's own as the theorem
//   says, divided once where avg divides;
// - it is the same expression on all ranks: what one final encode decodes to, if anything was
//   encoded after the last addition;
// - messages match in chunk, tier, order and number, and what was encoded for one tier travels and
//   is decoded in it; a finished value is of the outermost;
// - no two steps race under the dependencies that lower derives (check_races);
// - no rank waits for ever, even with one lane and an engine that takes steps in order, a run of
//   joined steps at once; every wire slot is given up in the end, so that the next instance finds
//   what the first one found.
// An error names the rank, the first wrong step and the reason.
Result<Verified> verify(const Theorem &theorem, const ScheduleOf &schedule_of);

} // namespace qccl
