// The names of SIMD tiers, as QCCL_TIER has them.
#pragma once

#include "base/result.hpp"

#include <cstdint>

namespace qccl {

struct Settings;

// What the settings allow, as a mask for best_kernels. An error lists what is possible.
Result<uint32_t> allowed_tiers(const Settings &settings);

} // namespace qccl
