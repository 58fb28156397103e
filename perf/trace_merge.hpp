// qccl-info trace: merges the QCCL_TRACE files of all ranks into one for Perfetto or
// chrome://tracing. Used by qccl-info.
#pragma once

#include "base/result.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

// Writes the events of all files to `output`, which is replaced and must not be one of the files.
// All times get one origin, and the clocks of the hosts are aligned. Files of killed ranks are read
// up to their last complete event. The error names the file and what is wrong.
Done merge_traces(const std::vector<std::string> &files, const std::string &output);

} // namespace qccl::perf
