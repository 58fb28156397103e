// The order in which rings pass the ranks of a job, and the NIC that each rank uses. Pure: equal
// graphs give equal orders on every rank.
#pragma once

#include "topology/ring_search.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

struct RankRing {
    std::vector<uint32_t> ranks; // each once; ranks of a machine are neighbours
    // What the ring carries while all rings run at once, in bytes per ns.
    double bytes_per_ns = 0;
    // Whether the links between machines say their rates, so that the figure above is no guess.
    bool is_rate_known = true;

    bool operator==(const RankRing &) const = default;
};

struct RankOrder {
    // At least one. Between machines there is a ring for each NIC that the smallest machine uses,
    // which leaves and enters the machines by different NICs.
    std::vector<RankRing> rings;
    // By rank, the NIC (a vertex) on the best path to the network: of equally near ones, that of
    // the fewest ranks, then the lowest. no_vertex: the rank's machine has none.
    std::vector<uint32_t> nics;
    // By rank, its parent in the tree of an all-reduce, which goes by the positions in the first
    // ring; rank 0 is the root and its own parent.
    std::vector<uint32_t> parents;
};

// `places`: by rank, the vertex where it is: a GPU, a NUMA node, or a machine where nothing better
// is known. Machines of one network (a rack) follow each other, and ranks at one vertex as well.
// Rank 0 begins.
RankOrder order_ranks(const Graph &graph, std::span<const uint32_t> places);

// The ranks of its rings, without what takes long to find out about many machines.
std::vector<std::vector<uint32_t>> rings_of_ranks(const Graph &graph,
                                                  std::span<const uint32_t> places);
std::vector<uint32_t> nearest_nics(const Graph &graph, std::span<const uint32_t> places);

} // namespace qccl
