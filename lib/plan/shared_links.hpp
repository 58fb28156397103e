// The links that messages share, as far as the planner looks at them one by one: those between the
// ranks of a host, which between GPUs differ from pair to pair, and those of racks. Used by
// step_counts and the topology graph. Pure data, equal on all ranks.
#pragma once

#include "base/settings.hpp"
#include "schedule/rank_topology.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace qccl {

struct NearLinks {
    // Hosts that are built alike.
    struct Kind {
        uint32_t parts = 0;                      // places where its ranks can be
        std::vector<double> byte_ns;             // by link, each direction for itself; 0: unknown
        std::vector<std::vector<uint32_t>> ways; // by from * parts + to: the links on the way

        bool operator==(const Kind &) const = default;
    };

    std::vector<Kind> kinds;
    std::vector<uint32_t> kind_of, part_of; // by rank

    // Returns the links on the way of a message between two ranks of a host.
    const std::vector<uint32_t> &way(uint32_t from, uint32_t to) const {
        const Kind &kind = kinds[kind_of[from]];
        return kind.ways[part_of[from] * kind.parts + part_of[to]];
    }
};

// The networks of a job form a tree: every network but the first has a link to the one that
// contains it. All messages that leave a rack, or a site, share its link.
struct RackLines {
    // For each network: the network that contains it, which stands before it. The first one
    // contains itself.
    std::vector<uint32_t> parent;
    std::vector<double> byte_ns;   // of its link there, each direction for itself; 0: unknown
    std::vector<uint32_t> rack_of; // by rank: the network that its host is in

    // Calls take(network, is_up) for the link of each network that a message leaves or enters.
    template <class Take> void each_line(uint32_t from, uint32_t to, Take take) const {
        // A network's number is greater than its parent's, so the greater of two networks never
        // contains the other.
        while (from != to) {
            const bool is_up = from > to;
            uint32_t &inner = is_up ? from : to;
            take(inner, is_up);
            inner = parent[inner];
        }
    }
    // Returns the rate of the slowest link that messages between racks cross; nothing if none of
    // the links that they cross has a known rate.
    std::optional<double> slowest_bytes_per_ns() const;
};

struct SharedLinks {
    std::shared_ptr<const NearLinks> near = nullptr;  // null: ranks are not on GPUs
    std::shared_ptr<const RackLines> racks = nullptr; // null: there is one rack
};

// Applies QCCL_RACK_RATE, the rate of a rack's link, to the links of all racks. If only `places`
// has racks, each of them gets a link to a network around them. Removes the racks if no link
// between them has a known rate. `places`: of all ranks; null: all are in one place.
void take_settings(const Settings &settings, const RankTopology *places, SharedLinks &links);

} // namespace qccl
