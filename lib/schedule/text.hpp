// The text form of schedules, for people and tests: one step a line, one section a rank. Knows what
// a step looks like, not what it means: whether a schedule is right is for verify to say.
#pragma once

#include "base/result.hpp"
#include "schedule/schedule.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// "encode wire(0) <- sum(2) #3 finishes"
std::string print(const Step &step);

// "rank 2, step 7 (send wire(0) -> 3): REASON"
Error wrong_step(uint32_t rank, size_t number, const Step &step, const char *reason);

// A rank's schedule and whose it is.
struct Section {
    Team team;
    Schedule schedule;

    bool operator==(const Section &) const = default;
};

// A header line, then the steps with their numbers:
//   schedule rank 1 of 4 root 0 chunks 4 outbox 2 wires 7 placed
//       0: encode wire(0) <- input(1)
//       1: send wire(0) -> 2 chunk 1 releases
// The chunk is printed where no operand tells it, "#" is the ordinal where it is not 0,
// "common" is followed by the rank whose noise is taken.
std::string print(const Section &section);

// Reads what print writes; numbers and the space around words are free, and a line that starts with
// "//" says nothing. Takes every byte for hostile: an error names the line and what is wrong with
// it.
Result<std::vector<Section>> parse(std::string_view text);

} // namespace qccl
