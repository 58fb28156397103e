// What qccl-info says about this library on this machine.
#pragma once

#include "base/result.hpp"

namespace qccl::perf {

void print_version();
void print_devices();
void print_transports();
Done print_codecs();
// Fails where the library refuses what a QCCL_* variable says.
Done print_settings();
Done print_everything();

} // namespace qccl::perf
