// What qccl-info says about this library on this machine.
#pragma once

#include "base/result.hpp"

#include <string>
#include <vector>

namespace qccl::perf {

void print_version();
void print_devices();
void print_transports();
void print_tools();
// As JSON, what qccl-perf's files say of their runs.
void print_run(const std::vector<std::string> &command_line);
Done print_codecs();
// Fails where the library refuses what a QCCL_* variable says.
Done print_settings();
Done print_everything();

} // namespace qccl::perf
