// Finds rings: first through the parts of one machine, then from these the orders in which rings
// pass the ranks of a job, and the NIC that each rank uses. The planner's figures, the simulator's
// fabric and the reports use it. Pure: equal graphs give equal rings and orders on every rank.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

// ---- Rings of a machine

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

// ---- Rings of a job

struct RankRing {
    std::vector<uint32_t> ranks; // each once; ranks of a machine are neighbours
    // The rate of the ring while all rings run at once, in bytes per ns.
    double bytes_per_ns = 0;
    // Whether the rates of the links between machines are known, so that bytes_per_ns is no guess.
    bool is_rate_known = true;

    bool operator==(const RankRing &) const = default;
};

struct RankOrder {
    // At least one. With several machines there is a ring for each NIC that the smallest machine
    // uses; the rings leave and enter the machines by different NICs.
    std::vector<RankRing> rings;
    // By rank, the NIC (a vertex) on the best path to the network. Of equally near NICs, the one
    // with the fewest ranks is taken, then the lowest. no_vertex: the rank's machine has none.
    std::vector<uint32_t> nics;
    // By rank, its parent in the tree of an all-reduce, which follows the positions in the first
    // ring. Rank 0 is the root and its own parent.
    std::vector<uint32_t> parents;
};

// `places`: by rank, the vertex where the rank is: a GPU, a NUMA node, or a machine if nothing
// better is known. In the rings, machines of one network (a rack) follow each other, and so do
// ranks at one vertex. Rank 0 begins.
RankOrder order_ranks(const Graph &graph, std::span<const uint32_t> places);

// Returns the ranks of the rings of order_ranks(), without the rates and the tree, which take long
// for many machines.
std::vector<std::vector<uint32_t>> rings_of_ranks(const Graph &graph,
                                                  std::span<const uint32_t> places);
std::vector<uint32_t> nearest_nics(const Graph &graph, std::span<const uint32_t> places);

} // namespace qccl
