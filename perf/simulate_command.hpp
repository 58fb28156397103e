// qccl-perf simulate: prints the table of a measurement for ranks and machines that need not exist.
#pragma once

#include <string>
#include <vector>

namespace qccl::perf {

// `words` are those after "simulate"; `command_line` is the whole command line, for the results.
// Blocks while it simulates. Returns the exit status.
int run_simulate_command(const std::vector<std::string> &words,
                         const std::vector<std::string> &command_line);

} // namespace qccl::perf
