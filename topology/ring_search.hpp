// Searches for rings through the parts of a machine, from which topology/rank_order makes the rings
// through the ranks of a job. Pure: equal graphs give equal rings on every rank.
#pragma once

#include "topology/path.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

struct Ring {
    std::vector<uint32_t> vertices; // each once; the last one is followed by the first
    // The rate of the ring while nothing else uses its links, in bytes per ns: the least over its
    // links of the link's capacity divided by how often the ring uses the link.
    double bytes_per_ns = 0;

    bool operator==(const Ring &) const = default;
};

// Returns rings through all of these distinct vertices of one machine. The first ring has the
// greatest rate at its narrowest hop, then the fewest hops over CPU interconnects, then over PCIe,
// then the fewest links. Each further ring uses what the earlier ones have left, and carries at
// least half of what the first one carries. Up to 16 vertices the search is exact; beyond, each
// vertex is followed by the nearest one that is left. If a vertex cannot be reached, returns one
// ring of rate 0 in the given order.
std::vector<Ring> find_rings(const Graph &graph, std::span<const uint32_t> vertices);

// Returns the rate of a ring in this order; 0 if there is no path between neighbours.
double ring_rate(const Graph &graph, const Capacities &capacities,
                 std::span<const uint32_t> vertices);

} // namespace qccl
