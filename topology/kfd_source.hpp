// Finds the links between AMD's GPUs, as Linux's driver (KFD) lists them in sysfs. Communicator
// creation and the tools use it. It reads a few small files for each GPU and does not touch the
// GPUs. Any thread may call it.
#pragma once

#include "topology/gpu_links.hpp"

#include <string>

namespace qccl {

// Returns nothing if there is no such driver. `root` is put before /sys; tests have a tree of their
// own.
GpuDetails find_xgmi(const std::string &root = "/");

} // namespace qccl
