// Copies one machine of a job's graph into a graph of its own, so that machines that are built
// alike can be recognised, and what is found on one holds for the others. Pure; any thread may call
// it.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <vector>

namespace qccl {

struct MachinePart {
    // Vertex 0 is the machine, without a name and with the number 0. Links to networks are left
    // out.
    Graph graph;
    std::vector<uint32_t> originals; // by vertex of the part: its number in the job's graph

    // Returns the part's number of a vertex of the job's graph; originals.size() if the vertex lies
    // outside of the machine.
    uint32_t number_of(uint32_t original) const;
};

MachinePart machine_part(const Graph &graph, uint32_t machine);

} // namespace qccl
