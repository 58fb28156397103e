// qccl-info topology: the parts and links of this machine or of one that is not there, and the
// rings through its ranks, as a tree, a matrix, a picture, JSON or text.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <string>

namespace qccl::perf {

struct TopologyQuestion {
    std::string topology; // a file or a description; empty: this machine
    uint32_t ranks = 0;   // 0: one for each GPU, or else for each NUMA node
    bool has_matrix = false;
    std::string svg, json, text; // files to be written; empty: not asked for; "-": standard output
};

// Prints the tree or the matrix, unless a file is standard output. Fails where the topology cannot
// be read, has no room for the ranks, or a file cannot be written.
Done print_topology(const TopologyQuestion &question);

} // namespace qccl::perf
