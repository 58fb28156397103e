// Finds the links between this machine's GPUs by their drivers. Communicator creation and the tools
// use it. Any thread may call it.
//
// Links between AMD's GPUs stand in sysfs, where Linux's driver (KFD) lists them: a few small files
// for each GPU are read, and no GPU is touched. Links between NVIDIA's GPUs come from NVIDIA's
// management library (NVML), which is loaded when it is needed, so that QCCL does not depend on it.
// No context is opened, but the driver wakes the GPUs, which can take seconds if nothing keeps them
// awake.
#pragma once

#include "topology/machine_graph.hpp"

#include <string>
#include <vector>

namespace qccl {

// ---- AMD

// Returns nothing if there is no such driver. `root` is put before /sys; tests have a tree of their
// own.
GpuDetails find_xgmi(const std::string &root = "/");

// ---- NVIDIA

inline constexpr const char *nvml_library = "libnvidia-ml.so.1";

// Returns the links of the GPUs with these bus ids. Returns nothing if there is no such library,
// and leaves out GPUs that the library does not know.
GpuDetails find_nvlinks(const std::vector<std::string> &bus_ids,
                        const char *library = nvml_library);

} // namespace qccl
