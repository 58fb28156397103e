// Describes to others what a rank waits for. Used by the code that waits, by records and by traces.
#pragma once

#include <cstdint>

namespace qccl {

// The numbers stand in records that other versions read.
enum class WaitPhase : uint32_t {
    unknown = 0,
    meeting = 1, // a peer to begin the call
    eager = 2,   // a peer to publish its eager slot
    message = 3, // a peer's chunk
    room = 4,    // a peer to take a chunk
    readers = 5, // peers to read a chunk of this rank
    network = 6, // sent messages to leave for other hosts
    device = 7,  // this rank's device to compute
};

struct Wait {
    Wait(uint32_t awaited = 0, WaitPhase what = WaitPhase::unknown) : on(awaited), phase(what) {}

    uint32_t on; // the rank; itself if it waits for others to read
    WaitPhase phase;
    // Step of the schedule and run over segments: which of how many, from 1; 0 if there is none.
    uint32_t step = 0, steps = 0;
    uint64_t segment = 0, segments = 0;
    // The rank also waits for something that does not wake it up, so the wait may last no longer
    // than one sleep between two checks.
    bool is_brief = false;
};

} // namespace qccl
