// qccl-perf calibrate: measures calls of a job and codecs on one core, and writes the file of
// figures that the planner then uses.
#pragma once

#include <string>
#include <vector>

namespace qccl::perf {

// `arguments` are the words after "calibrate". Returns the exit status.
int run_calibrate_command(std::vector<std::string> arguments);

} // namespace qccl::perf
