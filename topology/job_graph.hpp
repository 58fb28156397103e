// The graph of a job, made of its machines' graphs, and where ranks are on a machine. Used where a
// communicator is made. Pure: equal machines give an equal graph on every rank.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

struct JobTopology {
    Graph graph;
    std::vector<uint32_t> places; // by rank: a GPU, a NUMA node, or the machine
};

// A machine of the job: its graph with or without a network as vertex 0, its name and that of its
// rack, which may be empty.
struct JobMachine {
    const Graph *graph = nullptr;
    std::string name;
    std::string rack;
};

// The numbers that the machines' vertices have in the job's graph.
class JobGraph {
public:
    // A job of one machine has that one's graph. Of several, vertex 0 is the network, which
    // contains the machines in this order; where their racks differ, each rack is a network within
    // it. NICs that lead to no network are left out where others do; a machine without any is
    // linked to the network itself, with class tcp at an unknown rate. So are racks.
    explicit JobGraph(std::span<const JobMachine> machines);

    const Graph &graph() const { return graph_; }
    Graph take() && { return std::move(graph_); }
    // Of a vertex of a machine's graph; the machine itself where that vertex was left out.
    uint32_t number_of(size_t machine, uint32_t vertex) const;

private:
    void add_machine(const JobMachine &machine, uint32_t network);
    uint32_t network_of(const JobMachine &machine);

    Graph graph_;
    std::vector<std::string> racks_; // of graph_'s vertices 1, 2, ...
    std::vector<std::vector<uint32_t>> numbers_;
};

// On one machine's graph: the GPU that has the bus id, else the smallest NUMA node that has all of
// these processors, else the machine.
uint32_t place_of(const Graph &graph, const CpuSet &cpus, std::string_view bus_id);

// The number of the NUMA node that contains the place; empty where there is none, or but one.
std::optional<uint32_t> numa_number(const Graph &graph, uint32_t place);

} // namespace qccl
