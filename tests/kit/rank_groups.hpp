// Groups of ranks within groups for the slow twin: the tiers of a hierarchy and the order of a ring
// as lib/codec/WIRE.md describes them. Written from that document, not from the schedules.
#pragma once

#include "schedule/rank_topology.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace qtest {

struct RankGroup {
    uint32_t rank = 0;                 // if there are no parts
    std::vector<RankGroup> parts = {}; // in the order of their lowest ranks

    bool has(uint32_t one) const {
        if (parts.empty()) return rank == one;
        return std::any_of(parts.begin(), parts.end(),
                           [&](const RankGroup &part) { return part.has(one); });
    }
    uint32_t size() const { return static_cast<uint32_t>(parts.size()); }
    uint32_t part_with(uint32_t one) const {
        uint32_t at = 0;
        while (!parts[at].has(one)) at++;
        return at;
    }
    // A rank has depth 0, and a group one more than its parts.
    uint32_t depth() const { return parts.empty() ? 0 : parts[0].depth() + 1; }
    void leaves(std::vector<uint32_t> &ranks) const {
        if (parts.empty()) ranks.push_back(rank);
        for (const RankGroup &part : parts) part.leaves(ranks);
    }
    // Returns the fewest parts that any group of that depth has.
    uint32_t fewest_parts(uint32_t of_depth) const {
        if (depth() == of_depth) return size();
        uint32_t fewest = ~0U;
        for (const RankGroup &part : parts) fewest = std::min(fewest, part.fewest_parts(of_depth));
        return fewest;
    }
};

using Label = std::tuple<uint32_t, uint32_t, uint32_t>;

// Tier 0 is the rack, 1 the host, 2 the node.
inline Label label_of(const qccl::RankLocation &spot, int tier) {
    return {spot.rack, tier > 0 ? spot.host : 0, tier > 1 ? spot.node : 0};
}

inline std::vector<std::vector<uint32_t>>
parted(const std::vector<uint32_t> &ranks, const std::vector<qccl::RankLocation> &spots, int tier) {
    std::vector<std::vector<uint32_t>> found;
    std::map<Label, size_t> known;
    for (const uint32_t rank : ranks) {
        const auto [at, is_new] = known.emplace(label_of(spots[rank], tier), found.size());
        if (is_new) found.emplace_back();
        found[at->second].push_back(rank);
    }
    return found;
}

inline RankGroup grouped(const std::vector<uint32_t> &ranks,
                         const std::vector<qccl::RankLocation> &spots,
                         const std::vector<int> &tiers) {
    RankGroup group;
    if (tiers.empty()) {
        for (const uint32_t rank : ranks) group.parts.push_back({.rank = rank});
        return group;
    }
    for (const auto &part : parted(ranks, spots, tiers[0]))
        group.parts.push_back(grouped(part, spots, {tiers.begin() + 1, tiers.end()}));
    return group;
}

inline std::vector<uint32_t> all_ranks(uint32_t ranks) {
    std::vector<uint32_t> all;
    for (uint32_t rank = 0; rank < ranks; rank++) all.push_back(rank);
    return all;
}

// Leaves out tiers that part nothing. If there are no spots, all ranks are in one place.
inline RankGroup tiers_of(uint32_t ranks, const std::vector<qccl::RankLocation> &spots) {
    const auto all = all_ranks(ranks);
    std::vector<int> tiers;
    size_t finer = ranks;
    for (int tier = 2; tier >= 0 && !spots.empty(); tier--) {
        const size_t groups = parted(all, spots, tier).size();
        if (groups == 1 || groups == finer) continue;
        finer = groups;
        tiers.insert(tiers.begin(), tier);
    }
    return grouped(all, spots, tiers);
}

// Returns the ranks by their position in the ring.
inline std::vector<uint32_t> ring_of(uint32_t ranks, const std::vector<qccl::RankLocation> &spots) {
    if (spots.empty()) return all_ranks(ranks);
    std::vector<uint32_t> order;
    grouped(all_ranks(ranks), spots, {0, 1, 2}).leaves(order);
    return order;
}

} // namespace qtest
