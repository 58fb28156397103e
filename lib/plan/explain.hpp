// Says in words what the planner had to choose from and why it chose as it did.
#pragma once

#include "plan/planner.hpp"

#include <string>

namespace qccl {

// A head line, a line for each candidate, and the reasons. `forced` as in choose.
Result<std::string> explain(const Problem &problem, const Tables &tables,
                            const Algorithm &forced = {});

} // namespace qccl
