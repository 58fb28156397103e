// A matrix of the paths between GPUs, NICs and NUMA nodes, in the manner of `nvidia-smi topo -m`.
// Used by qccl-info. Pure.
#pragma once

#include "topology/graph.hpp"

#include <string>

namespace qccl {

// One matrix for each machine, or for the first of those that are built alike: the class of each
// path and the rate of its narrowest link. Where there are several machines a line on the path
// between two of them. Ends with a legend of the classes that occur.
std::string print_matrix(const Graph &graph);

} // namespace qccl
