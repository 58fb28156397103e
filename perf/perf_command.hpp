// qccl-perf's benchmark, from the command line to the exit status. Blocks until the run is over.
#pragma once

#include "perf/perf_arguments.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

// `arguments` are the words after the collective's name; `command_line` is the whole command line,
// for the results. Returns the exit status.
int run_perf(Collective collective, const std::string &program,
             const std::vector<std::string> &arguments,
             const std::vector<std::string> &command_line);

} // namespace qccl::perf
