// qccl-perf simulate: the table of a measurement, of ranks and machines that need not be there.
#pragma once

#include <string>
#include <vector>

namespace qccl::perf {

// `words` are those behind "simulate"; `command_line` is all of it, to be recorded. Returns the
// exit status.
int run_simulate_command(const std::vector<std::string> &words,
                         const std::vector<std::string> &command_line);

} // namespace qccl::perf
