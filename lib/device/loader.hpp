// Finds a device by its name: "host", or a vendor and a number, as in "cuda:0". A module drives the
// GPUs of one vendor; it is loaded when the caller first asks for such a GPU. Communicator creation
// and the tools use this. Loading blocks on the file system and on the vendor's driver.
#pragma once

#include "device/device.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// Names of the vendors whose GPUs the library supports, whether or not this build has their
// modules.
std::vector<std::string> gpu_vendors();

// Checks that `spec` has the form of a device's name; loads nothing. The error names the possible
// devices and starts with `who`, the source of the name, as in "config: device".
Done check_device(const std::string &who, std::string_view spec);

// Opens the GPU that `spec` names; null for "host". The error (invalid_argument) says what is
// missing: the module, the driver, or the GPU of that number. Other errors are the module's.
Result<std::shared_ptr<Gpu>> open_gpu(std::string_view spec);

// Returns how many GPUs of a vendor this machine has. If there are none, the error says why.
Result<uint32_t> count_gpus(const std::string &vendor);

} // namespace qccl
