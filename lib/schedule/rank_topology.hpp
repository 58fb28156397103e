// The locations of a team's ranks: which of them share a node, a host or a rack. Plain data that is
// equal on all ranks. Algorithms, the planner and the compiler of programs read it. Constant once
// made; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace qccl {

// Equal numbers mean the same node, host or rack; the numbers have no other meaning. A node is part
// of one host, and a host of one rack.
struct RankLocation {
    uint32_t node = 0;
    uint32_t host = 0;
    uint32_t rack = 0;

    bool operator==(const RankLocation &) const = default;
};

// One partition of the ranks: groups in the order of their lowest ranks, ranks ascending.
class Partition {
public:
    // Ranks with equal keys form a group. `keys`: by rank.
    explicit Partition(std::span<const uint64_t> keys);

    size_t groups() const { return ranks_.size(); }
    std::span<const uint32_t> ranks(size_t group) const { return ranks_[group]; }
    uint32_t group_of(uint32_t rank) const { return group_of_[rank]; }
    size_t most_ranks() const; // of the largest group
    bool operator==(const Partition &) const = default;

private:
    std::vector<std::vector<uint32_t>> ranks_; // by group
    std::vector<uint32_t> group_of_;           // by rank
};

// Orders in which rings pass the ranks: each rank once, rank 0 first.
using RingOrders = std::vector<std::vector<uint32_t>>;

class RankTopology {
public:
    // `spots`: by rank. `rings`: schedules use the first ring; schedules that use all rings at once
    // find other links in the others. If `rings` is empty there is one ring, whose neighbours share
    // a node, a host and a rack as far as possible.
    explicit RankTopology(std::vector<RankLocation> spots, RingOrders rings = {});

    uint32_t ranks() const { return static_cast<uint32_t>(spots_.size()); }
    const RankLocation &of(uint32_t rank) const { return spots_[rank]; }
    const Partition &hosts() const { return hosts_; }
    // Returns the partitions that separate ranks, each nested in the next. A partition that adds
    // nothing is left out, for example one host with all ranks, or hosts with one rank each.
    std::span<const Partition> tiers() const { return tiers_; }

    uint32_t rings() const { return static_cast<uint32_t>(rings_.size()); }
    std::span<const uint32_t> ring(uint32_t number = 0) const { return rings_[number]; }
    uint32_t position(uint32_t rank) const { return position_[rank]; } // in the first ring

    bool operator==(const RankTopology &other) const {
        return spots_ == other.spots_ && rings_ == other.rings_;
    }

private:
    // Returns a ring whose neighbours are as close as possible.
    std::vector<uint32_t> sorted_ring() const;

    std::vector<RankLocation> spots_;
    Partition hosts_;
    std::vector<Partition> tiers_;
    RingOrders rings_;
    std::vector<uint32_t> position_;
};

// Returns null if the topology adds nothing: all ranks are in one location (also meant by empty
// `spots`), and there is one ring, which passes the ranks in order.
std::shared_ptr<const RankTopology> make_rank_topology(std::vector<RankLocation> spots,
                                                       RingOrders rings);

} // namespace qccl
