// Prints a matrix of the paths between GPUs, NICs and NUMA nodes, in the manner of `nvidia-smi topo
// -m`. qccl-info uses it. Pure; any thread may call it.
#pragma once

#include "topology/graph.hpp"

#include <string>

namespace qccl {

// Returns one matrix for each machine, or for the first of those that are built alike: the class of
// each path and the rate of its narrowest link. If there are several machines, a line follows about
// the path between two of them. The last lines explain the classes that occur.
std::string print_matrix(const Graph &graph);

} // namespace qccl
