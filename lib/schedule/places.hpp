// Where the ranks of a team are: which of them share a node, a host, a rack. Pure data that all
// ranks hold alike; knows no machine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace qccl {

// Equal numbers are the same node, host or rack; what they are is of no interest. A node lies in
// one host, and a host in one rack.
struct Whereabouts {
    uint32_t node = 0;
    uint32_t host = 0;
    uint32_t rack = 0;

    bool operator==(const Whereabouts &) const = default;
};

// One way to part the ranks: groups in the order of their lowest ranks, ranks ascending.
class Partition {
public:
    // `key` of each rank: equal ones are together.
    explicit Partition(std::span<const uint64_t> keys);

    size_t groups() const { return ranks_.size(); }
    std::span<const uint32_t> ranks(size_t group) const { return ranks_[group]; }
    uint32_t group_of(uint32_t rank) const { return group_of_[rank]; }
    size_t most_ranks() const; // of a group
    bool operator==(const Partition &) const = default;

private:
    std::vector<std::vector<uint32_t>> ranks_; // by group
    std::vector<uint32_t> group_of_;           // by rank
};

// Orders in which rings pass the ranks, each once, rank 0 first.
using RingOrders = std::vector<std::vector<uint32_t>>;

class Places {
public:
    // `spots`: by rank. `rings`: the first is the one that schedules go by; the others use other
    // links, for schedules that go by all. None: there is one, whose neighbours share a node, a
    // host and a rack as far as that can be.
    explicit Places(std::vector<Whereabouts> spots, RingOrders rings = {});

    uint32_t ranks() const { return static_cast<uint32_t>(spots_.size()); }
    const Whereabouts &of(uint32_t rank) const { return spots_[rank]; }
    const Partition &hosts() const { return hosts_; }
    // The partitions that part anything, each within the next: of one host that has all ranks, or
    // of hosts that have a rank each, there is nothing to say.
    std::span<const Partition> tiers() const { return tiers_; }

    uint32_t rings() const { return static_cast<uint32_t>(rings_.size()); }
    std::span<const uint32_t> ring(uint32_t number = 0) const { return rings_[number]; }
    uint32_t position(uint32_t rank) const { return position_[rank]; } // in the first ring

    bool operator==(const Places &other) const {
        return spots_ == other.spots_ && rings_ == other.rings_;
    }

private:
    std::vector<uint32_t> sorted_ring() const;

    std::vector<Whereabouts> spots_;
    Partition hosts_;
    std::vector<Partition> tiers_;
    RingOrders rings_;
    std::vector<uint32_t> position_;
};

// Null where there is nothing to say: all ranks are in one place (which empty `spots` mean, too),
// and there is one ring, which passes them by rank.
std::shared_ptr<const Places> places_of(std::vector<Whereabouts> spots, RingOrders rings);

} // namespace qccl
