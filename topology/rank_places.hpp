// Places the ranks of a job on a topology that is given to the tools. Pure; any thread may call it.
#pragma once

#include "base/result.hpp"
#include "topology/graph.hpp"

#include <cstdint>
#include <vector>

namespace qccl {

// Returns the vertex of each rank, by rank. On GPUs there is one rank each, in the order of the
// GPUs' numbers, and machine after machine is filled. Without GPUs each machine gets a block of
// ranks of the same size, or one less, and deals it out over its NUMA nodes. `ranks` 0: one rank
// for each GPU, or without GPUs for each NUMA node. Returns invalid_argument if there are more
// ranks than GPUs.
Result<std::vector<uint32_t>> rank_places(const Graph &graph, uint32_t ranks);

} // namespace qccl
