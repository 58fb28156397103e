// Which machines and racks of a job are built alike, so that a report shows one of them. Pure.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace qccl {

// Machines are alike that have the same parts and links, and networks that contain machines that
// are alike in the same order. Names, numbers and bus ids do not count.
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

// Neighbours in a network that are alike.
struct AlikeRun {
    uint32_t first = 0; // vertex
    uint32_t count = 0;
};

// The children of `network`; those that are neither machines nor networks stand alone.
std::vector<AlikeRun> alike_runs(const Graph &graph, const Likeness &likeness, uint32_t network);

} // namespace qccl
