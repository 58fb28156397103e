// The names of SIMD tiers in QCCL_TIER. Used by creation and by the codec functions; pure, any
// thread.
#pragma once

#include "base/result.hpp"

#include <cstdint>

namespace qccl {

struct Settings;

// Returns the tiers that the settings allow, as a mask for best_kernels. An error lists what is
// possible.
Result<uint32_t> allowed_tiers(const Settings &settings);

} // namespace qccl
