// Proves that the schedules of all ranks finish even if sends are synchronous, as in a transport
// without buffers: a send is done only when its receive has been posted. Tests and qccl-info verify
// use it, beside verify(), in which every send is done at once, as in the engine. A pure function;
// any thread.
#pragma once

#include "schedule/verify.hpp"

#include <cstdint>

namespace qccl {

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
