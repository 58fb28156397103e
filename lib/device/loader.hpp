// From the name of a device to the device: "host", or a vendor and a number, as in "cuda:0". What
// drives GPUs of a vendor is a module, loaded when one of them is asked for.
#pragma once

#include "device/device.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// GPUs that there may be, by their vendors' names.
std::vector<std::string> gpu_vendors();

// Whether `spec` has the form of a device's name. An error is worded for `who`, who gave it, as in
// "config: device"; it loads nothing.
Done check_device(const std::string &who, std::string_view spec);

// `spec` as check_device has let it pass; null for "host". An error says what is missing: the
// module, the driver, the GPU of that number.
Result<std::shared_ptr<Gpu>> open_gpu(std::string_view spec);

// How many GPUs of a vendor this machine has; an error says why there are none.
Result<uint32_t> count_gpus(const std::string &vendor);

} // namespace qccl
