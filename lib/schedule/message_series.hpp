// Series of messages: a rank sends them to one peer, or receives them from one peer, and between
// two of them it only computes if it does its steps in order. Small messages of one series may go
// as one. Pure; any thread.
#pragma once

#include "schedule/schedule.hpp"

#include <cstdint>
#include <vector>

namespace qccl {

// By step: how many messages of its series come before it; 0 for a step that moves nothing.
std::vector<uint32_t> places_in_series(const Schedule &schedule);

} // namespace qccl
