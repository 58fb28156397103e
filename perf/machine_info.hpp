// What qccl-info prints about this library on this machine. Used by qccl-info.
#pragma once

#include "base/result.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

void print_version();
void print_devices();
void print_transports();
void print_tools();
// Prints as JSON the description of a run that qccl-perf's files begin with.
void print_run(const std::vector<std::string> &command_line);
Done print_codecs();
// Fails if the library refuses the value of a QCCL_* variable.
Done print_settings();
Done print_everything();

} // namespace qccl::perf
