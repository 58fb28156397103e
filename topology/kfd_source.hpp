// The links between AMD's GPUs, as Linux's driver (KFD) has them in sysfs. Used where a
// communicator is made and by the tools. Reads a few small files for each GPU, and touches none of
// these; any thread may call it.
#pragma once

#include "topology/gpu_links.hpp"

#include <string>

namespace qccl {

// Nothing where there is no such driver. `root` stands before /sys; tests have a tree of their own.
GpuDetails find_xgmi(const std::string &root = "/");

} // namespace qccl
