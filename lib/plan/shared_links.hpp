// The links that messages share, as far as the planner looks at them one by one: those between the
// ranks of a host, which between GPUs differ from pair to pair, and the lines of racks. Pure data,
// equal on all ranks.
#pragma once

#include "base/settings.hpp"
#include "schedule/places.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace qccl {

struct NearLinks {
    // Hosts that are built alike.
    struct Kind {
        uint32_t parts = 0;                      // where ranks are
        std::vector<double> byte_ns;             // by link, each way for itself; 0: unknown
        std::vector<std::vector<uint32_t>> ways; // from * parts + to: the links

        bool operator==(const Kind &) const = default;
    };

    std::vector<Kind> kinds;
    std::vector<uint32_t> kind_of, part_of; // by rank

    // Of a message between two ranks of a host.
    const std::vector<uint32_t> &way(uint32_t from, uint32_t to) const {
        const Kind &kind = kinds[kind_of[from]];
        return kind.ways[part_of[from] * kind.parts + part_of[to]];
    }
};

// The networks of a job: a tree, in which every network but the first has a line to the one that
// contains it. What leaves a rack, or a site, shares its line.
struct RackLines {
    // By network. The network that contains it, which stands before it; of the first itself.
    std::vector<uint32_t> parent;
    std::vector<double> byte_ns;   // of its line to that network, each way for itself; 0: unknown
    std::vector<uint32_t> rack_of; // by rank: the network that its host is in

    // Calls take(network, is_up) for the line of each network that a message leaves or enters.
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
    // The rate of the slowest line that messages between racks cross. Nothing: no line that they
    // cross says its rate.
    std::optional<double> slowest_bytes_per_ns() const;
};

struct SharedLinks {
    std::shared_ptr<const NearLinks> near = nullptr;  // null: ranks are not on GPUs
    std::shared_ptr<const RackLines> racks = nullptr; // null: there is one rack
};

// Where QCCL_RACK_RATE says what a rack's line carries, all lines carry that; racks that nothing
// but `places` tells of have a line each to a network around them. Leaves no racks between which no
// line says its rate. `places`: of all ranks; null: all are in one place.
void take_settings(const Settings &settings, const Places *places, SharedLinks &links);

} // namespace qccl
