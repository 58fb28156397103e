// qccl-info calls: what files of QCCL_RECORD_CALLS say of a job.
#pragma once

#include "base/result.hpp"
#include "record/call_log.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

// Prints the ranks, the calls by shape, and the skew. An error, invalid_argument or damaged_data,
// names the file and what is wrong with it.
Done print_calls(const std::vector<std::string> &files);

// The files' logs, in their order. An error, invalid_argument or damaged_data, names the file; two
// files of one rank are refused.
Result<std::vector<CallLog>> read_call_logs(const std::vector<std::string> &files);

} // namespace qccl::perf
