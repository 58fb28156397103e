// Finds the values that a rank sends and that also lie in the caller's buffers, so that peers can
// read them there (zero copy) instead of in the outbox. The compiler of programs uses it. A pure
// function of one rank's schedule; any thread.
#pragma once

#include "engine/accumulator_placement.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qccl {

// Where peers can read what one encode writes, if the encode only copies values.
struct Lendable {
    std::optional<uint32_t> input; // chunk of the input that holds the value
    // Peers may read the input also if the output lies in the same memory. A run that writes the
    // output there has to wait for the readers.
    bool also_in_place = false;
    // Chunk of the output that the same run stores the value in, and that no other step writes.
    std::optional<uint32_t> output;
    uint32_t readers = 0; // runs of this rank that read the wire slot, sends included
};

// Returns the result for each encode, by its Step::ordinal. The schedule must be placed; the engine
// issues each of `runs` as a whole.
std::vector<Lendable> find_lendable(const Schedule &schedule, std::span<const StepRun> runs);

} // namespace qccl
