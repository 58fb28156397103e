// The text form of schedules, for people and tests: one step per line, one section per rank.
// Parsing checks the form of the steps only; verify() checks whether a schedule is right. Pure
// functions; any thread.
#pragma once

#include "base/result.hpp"
#include "schedule/schedule.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// Returns the text of a step: "encode wire(0) <- sum(2) #3 finishes".
std::string print(const Step &step);

// Returns the error (invalid_argument) "rank 2, step 7 (send wire(0) -> 3): REASON".
Error wrong_step(uint32_t rank, size_t number, const Step &step, const char *reason);

// A schedule, and the rank and team that it belongs to.
struct Section {
    Team team;
    Schedule schedule;

    bool operator==(const Section &) const = default;
};

// Returns a header line, then the steps with their numbers:
//   schedule rank 1 of 4 root 0 chunks 4 outbox 2 wires 7 placed
//       0: encode wire(0) <- input(1)
//       1: send wire(0) -> 2 chunk 1 releases
// The chunk is printed if no operand names it, and the ordinal after "#" if it is not 0. "common"
// is followed by the rank whose noise is used.
std::string print(const Section &section);

// Parses what print writes. Step numbers and spaces around words are optional, and a line that
// starts with "//" is a comment. The input may be hostile: any byte sequence gives a result or an
// error (invalid_argument) that names the line and what is wrong with it.
Result<std::vector<Section>> parse(std::string_view text);

} // namespace qccl
