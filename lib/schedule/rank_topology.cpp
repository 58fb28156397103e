// Partitions ranks by location, and sorts a ring so that neighbours are close.
#include "schedule/rank_topology.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace qccl {

namespace {

enum class Tier : uint8_t { node, host, rack };

// Returns a key for each rank. Keys are equal if the ranks share the rack and, down to `tier`, the
// host and the node.
std::vector<uint64_t> keys_of(std::span<const RankLocation> spots, Tier tier) {
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint64_t> known;
    std::vector<uint64_t> keys;
    for (const RankLocation &spot : spots) {
        const std::tuple key(spot.rack, tier <= Tier::host ? spot.host : 0,
                             tier == Tier::node ? spot.node : 0);
        keys.push_back(known.emplace(key, known.size()).first->second);
    }
    return keys;
}

Partition part(std::span<const RankLocation> spots, Tier tier) {
    return Partition(keys_of(spots, tier));
}

} // namespace

Partition::Partition(std::span<const uint64_t> keys) {
    std::map<uint64_t, uint32_t> known;
    for (uint32_t rank = 0; rank < keys.size(); rank++) {
        const auto [found, is_new] =
            known.emplace(keys[rank], static_cast<uint32_t>(ranks_.size()));
        if (is_new) ranks_.emplace_back();
        ranks_[found->second].push_back(rank);
        group_of_.push_back(found->second);
    }
}

size_t Partition::most_ranks() const {
    size_t most = 0;
    for (const auto &ranks : ranks_) most = std::max(most, ranks.size());
    return most;
}

RankTopology::RankTopology(std::vector<RankLocation> spots, RingOrders rings)
    : spots_(std::move(spots)), hosts_(part(spots_, Tier::host)), rings_(std::move(rings)),
      position_(spots_.size()) {
    size_t finer = spots_.size();
    for (const Tier tier : {Tier::node, Tier::host, Tier::rack}) {
        Partition partition = part(spots_, tier);
        if (partition.groups() == 1 || partition.groups() == finer) continue;
        finer = partition.groups();
        tiers_.push_back(std::move(partition));
    }
    if (rings_.empty()) rings_.push_back(sorted_ring());
    for (uint32_t at = 0; at < position_.size(); at++) position_[ring()[at]] = at;
}

// Orders groups by their lowest ranks, so that ranks that already lie well keep their order.
std::vector<uint32_t> RankTopology::sorted_ring() const {
    const Partition racks = part(spots_, Tier::rack), nodes = part(spots_, Tier::node);
    std::vector<uint32_t> ring(spots_.size());
    std::iota(ring.begin(), ring.end(), 0U);
    const auto key = [&](uint32_t rank) {
        return std::tuple(racks.group_of(rank), hosts_.group_of(rank), nodes.group_of(rank), rank);
    };
    std::sort(ring.begin(), ring.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    return ring;
}

std::shared_ptr<const RankTopology> make_rank_topology(std::vector<RankLocation> spots,
                                                       RingOrders rings) {
    if (spots.empty()) {
        if (rings.empty() || (rings.size() == 1 && std::ranges::is_sorted(rings[0])))
            return nullptr;
        spots.resize(rings[0].size());
    }
    return std::make_shared<const RankTopology>(std::move(spots), std::move(rings));
}

} // namespace qccl
