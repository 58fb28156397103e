// Writes a call as GOAL text, the schedules that LogGOPSim and ATLAHS simulate: for each rank its
// sends, receives and computing (ns), and the dependencies between them. Used by qccl-perf
// simulate. Pure; any thread.
#pragma once

#include "base/result.hpp"
#include "plan/rank_program.hpp"

#include <functional>
#include <string>

namespace qccl {

// Calls write(text) for a head line and then for each rank in order. Stops at the first error of
// write() and returns it. Instance i of the schedule begins when instance i - lanes has ended.
// Unlike in the engine, messages do not wait for free slots. Returns invalid_argument if no
// schedule or cut fits the call.
Done write_goal(const SimulatedCall &call, const std::function<Done(const std::string &)> &write);

} // namespace qccl
