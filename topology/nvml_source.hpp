// The links between NVIDIA's GPUs, as NVIDIA's management library has them. Used where a
// communicator is made and by the tools. The library is looked for when it is needed, so that
// nothing depends on it. It opens no context, but its driver wakes the GPUs, which can take seconds
// where nothing keeps them awake. Any thread may call it.
#pragma once

#include "topology/gpu_links.hpp"

#include <string>
#include <vector>

namespace qccl {

inline constexpr const char *nvml_library = "libnvidia-ml.so.1";

// Of the GPUs with these bus ids. Nothing where there is no such library, and nothing of GPUs that
// it does not know.
GpuDetails find_nvlinks(const std::vector<std::string> &bus_ids,
                        const char *library = nvml_library);

} // namespace qccl
