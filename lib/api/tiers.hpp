// The names of SIMD tiers, as QCCL_TIER has them.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <string>

namespace qccl {

struct Settings;

// "avx2,baseline" as a mask for best_kernels. An error lists what is possible.
Result<uint32_t> parse_tiers(const std::string &names);
// What the settings allow.
Result<uint32_t> allowed_tiers(const Settings &settings);

} // namespace qccl
