// The demonstration: sums real gradients of several ranks, lossless and compressed, and shows
// speed, bytes on the wire and error side by side. Starts its ranks itself and blocks until they
// end. Returns the exit status.
#pragma once

#include <string>
#include <vector>

namespace qccl::perf {

int run_demo(const std::vector<std::string> &arguments);

} // namespace qccl::perf
