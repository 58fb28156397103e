// qccl-perf calibrate: measures calls of a job and codecs of one core, and writes the file of
// figures by which the planner then counts.
#pragma once

#include <string>
#include <vector>

namespace qccl::perf {

// `arguments` are those behind "calibrate". Returns the exit status.
int run_calibrate_command(std::vector<std::string> arguments);

} // namespace qccl::perf
