// What a rank waits for, to be shown to others. Knows not how it waits.
#pragma once

#include <cstdint>

namespace qccl {

// Numbers stand in records that other versions read.
enum class WaitPhase : uint32_t {
    unknown = 0,
    meeting = 1, // another to begin the call
    line = 2,    // another to show its small message
    message = 3, // another's chunk
    room = 4,    // another to take a chunk
    readers = 5, // others to read a chunk of its own
    network = 6, // what it sent to leave for other hosts
    device = 7,  // its own device to compute
};

struct Wait {
    Wait(uint32_t awaited = 0, WaitPhase what = WaitPhase::unknown) : on(awaited), phase(what) {}

    uint32_t on; // the rank; itself where it waits for others to read
    WaitPhase phase;
    // Of the schedule, and its runs over segments: which of how many, from 1; 0 where there is
    // none.
    uint32_t step = 0, steps = 0;
    uint64_t segment = 0, segments = 0;
    // It waits for something else, too, of which nobody wakes it: the wait lasts no longer than it
    // may sleep between two looks.
    bool is_brief = false;
};

} // namespace qccl
