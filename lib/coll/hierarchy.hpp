// Hierarchy: ranks that are near each other sum up first, of each host a carrier goes on with what
// came out between the hosts, and the results come back the same way. Made of the phases of other
// algorithms, for as many tiers as the team's places have.
#pragma once

#include "coll/algorithm.hpp"

#include <string_view>

namespace qccl {

// Within the nearest groups; what sums sums uses `outer`'s.
inline constexpr std::string_view inner_words[] = {"direct", "ring", "halving", "tree"};
inline constexpr std::string_view outer_words[] = {"ring", "halving", "direct", "tree"};
// Who carries between groups: every rank of a group its share (as many as the smallest has ranks),
// or one for all.
inline constexpr std::string_view share_words[] = {"every", "leader"};
// What unfinished values travel with below the outermost tier, where the call's codec loses
// something; results travel with the call's everywhere.
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
