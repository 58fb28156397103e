// A small client of PMI version 1, which process managers such as MPICH's hydra offer to the
// processes that they start: lines of text, one request and one answer at a time. It carries one
// text from rank 0 to all other ranks. join_environment() uses it; it blocks until the deadline at
// most.
#pragma once

#include "base/deadline.hpp"
#include "base/result.hpp"

#include <string>

namespace qccl {

// Rank 0 gives the text, and every rank returns it; all ranks of the job must call. `wire` is the
// descriptor of the PMI connection. The call finalizes the PMI session, because a manager takes a
// process that has spoken and exits without that for dead. So a process can call it only once.
// Errors: system_error, timeout.
Result<std::string> spread_through_manager(int connection, uint32_t rank, const std::string &text,
                                           TimePoint deadline);

} // namespace qccl
