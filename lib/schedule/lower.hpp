// Derives which steps each step must wait for, from the slots that the steps read and write; the
// author of a schedule writes no waits. The compiler of programs and the verifier use it. Pure
// functions of one rank's schedule; any thread.
#pragma once

#include "schedule/schedule.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

// The steps that each step waits for: indices of earlier steps, ascending, in one array for all.
struct Dependencies {
    std::vector<uint32_t> first{0}; // of step i: earlier[first[i]] .. earlier[first[i + 1] - 1]
    std::vector<uint32_t> earlier;

    size_t steps() const { return first.size() - 1; }
    std::span<const uint32_t> of(size_t step) const {
        return std::span(earlier).subspan(first[step], first[step + 1] - first[step]);
    }
    bool operator==(const Dependencies &) const = default;
};

// Returns the dependencies: read after write, write after read and write after write of every slot.
// Input c and output c count as one slot. A wait that another one implies is left out where that is
// cheap to see. Also numbers the messages of each pair of ranks in each direction, and marks the
// last reader of every value that a wire slot holds (Step::releases).
Dependencies lower(Schedule &schedule);

} // namespace qccl
