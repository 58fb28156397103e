// Hierarchy: ranks that are near each other sum first, a leader of each host sums these partial
// sums between the hosts, and the results come back the same way. Consists of phases of other
// algorithms, for as many tiers as the team's topology has. Pure; any thread may call.
#pragma once

#include "coll/algorithm.hpp"

#include <string_view>

namespace qccl {

// The phases within the nearest groups; levels that sum partial sums use those of `outer`.
inline constexpr std::string_view inner_words[] = {"direct", "ring", "halving", "tree"};
inline constexpr std::string_view outer_words[] = {"ring", "halving", "direct", "tree"};
// The leaders, which forward between groups: every rank of a group a share of the data (as many
// shares as the smallest group has ranks), or one rank for all of the data.
inline constexpr std::string_view share_words[] = {"every", "leader"};
// The codec of partial sums below the outermost tier, if the call's codec is lossy. Results travel
// with the call's codec everywhere.
inline constexpr std::string_view inner_codec_words[] = {
    "none",      "fp16",      "bf16",  "fp8e4m3", "fp8e5m2", "int12",    "int10",
    "int8",      "int6",      "int5",  "int4",    "int3",    "int2",     "minmax",
    "mxfp8e4m3", "mxfp6e2m3", "mxfp4", "nvfp4",   "onebit",  "terngrad", "topk"};

Schedule all_reduce_hierarchy(const Team &team, const Choices &choices);
Schedule reduce_scatter_hierarchy(const Team &team, const Choices &choices);
Schedule all_gather_hierarchy(const Team &team, const Choices &choices);
Schedule broadcast_hierarchy(const Team &team, const Choices &choices);

SumOrder by_hierarchy(Collective collective, const Team &team, const Choices &choices,
                      uint32_t chunk);
uint32_t rounds_hierarchy(Collective collective, const Team &team, const Choices &choices);
uint32_t outer_rounds_hierarchy(Collective collective, const Team &team, const Choices &choices);
double noise_hierarchy(Collective collective, const Team &team, const Choices &choices);
double inner_noise_hierarchy(Collective collective, const Team &team, const Choices &choices);

} // namespace qccl
