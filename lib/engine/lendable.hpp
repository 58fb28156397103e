// Which of the values that a rank sends lie in the caller's buffers too, so that peers may read
// them there and need no copy in the outbox. Knows one rank's schedule, no addresses and no
// transport.
#pragma once

#include "engine/homes.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qccl {

// Of one encode, if what it writes are the values themselves.
struct Lendable {
    std::optional<uint32_t> input; // the value, as the caller gave it
    // Also in calls whose output lies in the same memory. Whoever writes the output there has to
    // wait for the readers.
    bool also_in_place = false;
    // The output in which the same run stores it, and which nobody writes again.
    std::optional<uint32_t> output;
    uint32_t readers = 0; // runs of this rank that read the wire, sends among them
};

// By Step::ordinal of the encodes. For placed schedules; the runs are issued as a whole.
std::vector<Lendable> find_lendable(const Schedule &schedule, std::span<const StepRun> runs);

} // namespace qccl
