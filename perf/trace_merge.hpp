// qccl-info trace: the ranks' files of QCCL_TRACE as one, for Perfetto or chrome://tracing.
#pragma once

#include "base/result.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

// Writes the events of all files to `output` (which is replaced, and may be none of them), with one
// origin of times and the clocks of hosts brought together. Files of killed ranks are read as far
// as they go. An error names the file and what is wrong.
Done merge_traces(const std::vector<std::string> &files, const std::string &output);

} // namespace qccl::perf
