// qccl-perf's benchmark from the command line to the exit status.
#pragma once

#include "perf/perf_arguments.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

// `arguments` are those behind the collective's name; `command_line` is all of it, to be recorded.
int run_perf(Collective collective, const std::string &program,
             const std::vector<std::string> &arguments,
             const std::vector<std::string> &command_line);

} // namespace qccl::perf
