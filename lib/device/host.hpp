// The host as a device: this machine's cores and its memory. Any thread may call this; nothing
// blocks.
#pragma once

#include "device/device.hpp"

namespace qccl {

// Returns the host with the best kernels that this machine has and `tiers` allows (one bit per
// Tier).
Device host_device(uint32_t tiers = ~0U);

} // namespace qccl
