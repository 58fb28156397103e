// Says which SIMD tiers QCCL_TIER allows. The creation of a communicator and the codec API choose
// their kernels by it, and the tools plan by it for machines that are not there. Any thread may
// call; nothing blocks.
#pragma once

#include "base/result.hpp"

#include <cstdint>

namespace qccl {

struct Settings;

// Returns the tiers that the settings allow, as a mask for best_kernels. An error lists what is
// possible.
Result<uint32_t> allowed_tiers(const Settings &settings);

} // namespace qccl
