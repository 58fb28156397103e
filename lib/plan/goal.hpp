// A call as GOAL text, the schedules that LogGOPSim and ATLAHS simulate: for each rank its sends,
// receives and computing (ns), and which of them requires which. Used by qccl-perf simulate. Pure;
// any thread.
#pragma once

#include "base/result.hpp"
#include "plan/rank_program.hpp"

#include <functional>
#include <string>

namespace qccl {

// Calls write(text) for each rank, in order, and stops at its first error. Instance i of the
// schedule begins when instance i - lanes has ended; messages that wait for a slot do not wait
// there. Refuses with invalid_argument what no schedule or cut fits.
Done write_goal(const SimulatedCall &call, const std::function<Done(const std::string &)> &write);

} // namespace qccl
