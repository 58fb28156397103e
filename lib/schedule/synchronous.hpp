// Proves that the schedules of all ranks come to their end where sends are synchronous, as a
// transport without buffers has them: a send is done only when its receive has been posted. Used by
// tests and by qccl-info verify, beside verify(), which lets every send be done at once, as the
// engine's are. A pure function; any thread.
#pragma once

#include "schedule/verify.hpp"

#include <cstdint>

namespace qccl {

struct SynchronousProof {
    uint64_t messages = 0;
    // How far a rank has to look ahead: with fewer tasks (sends, receives, runs of joined steps)
    // in flight, the oldest unfinished one included, the ranks would wait for one another for
    // ever. 1: sends and receives may block.
    uint32_t in_flight = 1;
};

// A rank posts each send and receive, and computes, as soon as the steps that it depends on are
// done and the own wire slots that it encodes into are read. An error (invalid_argument) names
// two ranks that wait for each other's side and their steps. For schedules that verify() has
// accepted, asked for once, in order.
Result<SynchronousProof> verify_synchronous(uint32_t ranks, const ScheduleOf &schedule_of);

} // namespace qccl
