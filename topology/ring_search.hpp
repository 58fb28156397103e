// Rings through the parts of a machine, and through the ranks of a job. Pure functions: equal
// graphs give equal rings on every rank.
#pragma once

#include "topology/path.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

struct Ring {
    std::vector<uint32_t> vertices; // each once; the last one is followed by the first
    // What the ring carries each second while nothing else uses its links, in bytes per ns: the
    // least over its links of their capacity divided by how often the ring uses them.
    double bytes_per_ns = 0;

    bool operator==(const Ring &) const = default;
};

// Rings through all of these distinct vertices of one machine. The first has the greatest rate at
// its narrowest hop, then the fewest hops over CPU interconnects, then over PCIe, then the fewest
// links. Others follow that use what the ones before have left, as long as they carry at least half
// of what the first one carries. Up to 16 vertices the search is exact; beyond, each vertex is
// followed by the nearest that is left. Where a vertex cannot be reached, one ring of rate 0 passes
// them as they are given.
std::vector<Ring> find_rings(const Graph &graph, std::span<const uint32_t> vertices);

// The rate of a ring in this order; 0 where there is no path between neighbours.
double ring_rate(const Graph &graph, const Capacities &capacities,
                 std::span<const uint32_t> vertices);

} // namespace qccl
