// Finds the orders in which rings pass the ranks of a job, and the NIC that each rank uses. The
// planner's figures, the simulator's fabric and the reports use it. Pure: equal graphs give equal
// orders on every rank.
#pragma once

#include "topology/ring_search.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

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
