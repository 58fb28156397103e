// Where the ranks of a job lie on a topology that is given to the tools. Pure.
#pragma once

#include "base/result.hpp"
#include "topology/graph.hpp"

#include <cstdint>
#include <vector>

namespace qccl {

// By rank, its vertex. On GPUs there is one rank each, in the order of their numbers, and machine
// after machine is filled. Without GPUs the machines have equally many ranks or one less, in
// blocks, which are dealt out over their NUMA nodes. 0 ranks: one for each GPU, or else for each
// NUMA node. Returns invalid_argument where there are more ranks than GPUs.
Result<std::vector<uint32_t>> rank_places(const Graph &graph, uint32_t ranks);

} // namespace qccl
