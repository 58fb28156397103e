// Proves that the schedules of all ranks are right together. verify() runs them on expressions
// instead of values; in it every send is done at once, as in the engine. It checks the contract's
// orders of sums and needs neither algorithms nor codecs. verify_synchronous() proves that the
// schedules finish even if sends are synchronous, as in a transport without buffers: a send is done
// only when its receive has been posted. Tests and qccl-info verify use both. Pure functions; any
// thread.
//
// verify.cpp and verify_synchronous.cpp define the two proofs; verify_parts.hpp has what the first
// one is made of.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <functional>

namespace qccl {

// ---- Proof of the results

// The claim that verify() proves.
struct Theorem {
    Collective collective = Collective::all_reduce;
    OrderOf order = by_rank;
    uint32_t ranks = 1;
    uint32_t root = 0;
    OwnInput own = OwnInput::exact; // for sums of more than one rank
};

// Counts taken during the proof.
struct Verified {
    uint64_t steps = 0;
    uint64_t messages = 0;
    uint32_t rounds = 0; // the longest chain of messages that wait for one another
    // Predicted NMSE of a result, in units of the NMSE of one encode: in the outermost tier, and
    // below.
    double noise = 0, inner_noise = 0;
};

// Returns a rank's schedule, as the author wrote it or placed, joined or not. Called once for each
// rank, in order.
using ScheduleOf = std::function<Result<Schedule>(uint32_t rank)>;

// Proves that
// - every output of every rank holds the contributions of all ranks (for a gather or a broadcast:
//   the contribution of the source), each once, summed in the contract's order, the adding rank's
//   own as the theorem says, divided once if avg divides;
// - each output is the same expression on all ranks: what one final encode decodes to, if anything
//   was encoded after the last addition;
// - messages match in chunk, tier, order and number; a value that was encoded for one tier travels
//   and is decoded in that tier, and a finished value belongs to the outermost tier;
// - no two steps race under the dependencies that lower derives (check_races);
// - no rank waits for ever, even with one lane and an engine that takes steps in order, a run of
//   joined steps at once; every wire slot is given back in the end, so that the next instance
//   starts from the same state as the first.
// The error (invalid_argument) names the rank, the first wrong step and the reason.
Result<Verified> verify(const Theorem &theorem, const ScheduleOf &schedule_of);

// ---- Proof for synchronous sends

struct SynchronousProof {
    uint64_t messages = 0;
    // How many tasks (sends, receives, runs of joined steps) a rank must have in flight, from the
    // oldest unfinished one on; with fewer, the ranks would wait for one another for ever. 1: sends
    // and receives may block.
    uint32_t in_flight = 1;
};

// A rank posts a send or a receive, or computes, as soon as the steps that this depends on are
// done, and the own wire slots that it encodes into have been read. The error (invalid_argument)
// names two ranks that wait for each other, and their steps. The schedules must have passed
// verify(); `schedule_of` is called once for each rank, in order.
Result<SynchronousProof> verify_synchronous(uint32_t ranks, const ScheduleOf &schedule_of);

} // namespace qccl
