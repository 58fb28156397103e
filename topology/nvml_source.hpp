// Finds the links between NVIDIA's GPUs through NVIDIA's management library (NVML). Communicator
// creation and the tools use it. The library is loaded when it is needed, so that QCCL does not
// depend on it. No context is opened, but the driver wakes the GPUs, which can take seconds if
// nothing keeps them awake. Any thread may call it.
#pragma once

#include "topology/gpu_links.hpp"

#include <string>
#include <vector>

namespace qccl {

inline constexpr const char *nvml_library = "libnvidia-ml.so.1";

// Returns the links of the GPUs with these bus ids. Returns nothing if there is no such library,
// and leaves out GPUs that the library does not know.
GpuDetails find_nvlinks(const std::vector<std::string> &bus_ids,
                        const char *library = nvml_library);

} // namespace qccl
