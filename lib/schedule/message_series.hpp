// Finds series of messages: a rank sends them to one peer, or receives them from one peer, and only
// computes between two of them when it does its steps in order. The small messages of one series
// may go as one. The compiler of programs and the planner use it. A pure function; any thread.
#pragma once

#include "schedule/schedule.hpp"

#include <cstdint>
#include <vector>

namespace qccl {

// Returns for each step how many messages of its series come before it; 0 for a step that moves
// nothing.
std::vector<uint32_t> places_in_series(const Schedule &schedule);

} // namespace qccl
