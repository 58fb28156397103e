// qccl-info topology: shows the parts and links of this machine or of another one, and the rings
// through its ranks, as a tree, a matrix, a picture, JSON or text. Used by qccl-info.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <string>

namespace qccl::perf {

struct TopologyQuestion {
    std::string topology; // a file or a description; empty: this machine
    uint32_t ranks = 0;   // 0: one for each GPU, or one for each NUMA node if there are no GPUs
    bool has_matrix = false;
    std::string svg, json, text; // files to write; empty: none; "-": standard output
};

// Prints the tree or the matrix, unless a file goes to standard output. Fails if the topology
// cannot be read or has too few places for the ranks, or if a file cannot be written.
Done print_topology(const TopologyQuestion &question);

} // namespace qccl::perf
