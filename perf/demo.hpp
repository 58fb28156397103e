// The demonstration: real gradients of several ranks, summed lossless and compressed, with speed,
// wire bytes and error side by side.
#pragma once

#include <string>
#include <vector>

namespace qccl::perf {

int run_demo(const std::vector<std::string> &arguments);

} // namespace qccl::perf
