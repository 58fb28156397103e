// qccl-info calls: summarizes the logs that QCCL_RECORD_CALLS has written for a job. Used by
// qccl-info; `whatif` reads the logs here too. Blocks while it reads and computes.
#pragma once

#include "base/result.hpp"
#include "record/call_log.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

// Prints the ranks, the calls by shape, and the skew. The error (invalid_argument or damaged_data)
// names the file and what is wrong with it.
Done print_calls(const std::vector<std::string> &files);

// Returns the logs in the order of `files`. The error (invalid_argument or damaged_data) names the
// file. Two files of the same rank are refused.
Result<std::vector<CallLog>> read_call_logs(const std::vector<std::string> &files);

} // namespace qccl::perf
