// What this machine's processor calls itself.
#pragma once

#include <string>

namespace qccl::perf {

std::string processor_name();

} // namespace qccl::perf
