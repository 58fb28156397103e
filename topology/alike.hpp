// Finds machines and racks of a job that are built alike, so that a report shows only one of them.
// The tree, the matrix and the picture use it. Pure; any thread may call it.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace qccl {

// Machines are alike if they have the same parts and links. Networks are alike if they contain
// alike machines in the same order. Names, numbers and bus ids do not count. Keeps a reference to
// `graph`.
class Likeness {
public:
    explicit Likeness(const Graph &graph);

    // Equal for machines and networks that are alike.
    uint32_t shape(uint32_t vertex) const { return shapes_[vertex]; }

private:
    std::string describe_machine(uint32_t machine) const;
    std::string describe_links(uint32_t vertex, const std::map<uint32_t, size_t> &places) const;

    const Graph &graph_;
    std::vector<uint32_t> shapes_; // by vertex; 0 for parts of machines
};

// Members of a network that follow each other and are alike.
struct AlikeRun {
    uint32_t first = 0; // vertex
    uint32_t count = 0;
};

// Groups the children of `network`. A child that is neither a machine nor a network is a run by
// itself.
std::vector<AlikeRun> alike_runs(const Graph &graph, const Likeness &likeness, uint32_t network);

} // namespace qccl
