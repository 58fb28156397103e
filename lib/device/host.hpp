// The host as a device: this machine's cores and its memory.
#pragma once

#include "device/device.hpp"

namespace qccl {

// With the best kernels that `tiers` allows (a bit per Tier).
Device host_device(uint32_t tiers = ~0U);

} // namespace qccl
