// Makes the graph of a job from the graphs of its machines, and finds where a rank is on a machine.
// Communicator creation uses it. Pure: equal machines give an equal graph on every rank.
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

// A machine of the job: its graph, with or without a network as vertex 0, its name, and the name of
// its rack, which may be empty.
struct JobMachine {
    const Graph *graph = nullptr;
    std::string name;
    std::string rack;
};

// The job's graph, and the numbers that the machines' vertices have in it.
class JobGraph {
public:
    // A job of one machine has that machine's graph. For several machines, vertex 0 is the network,
    // which contains the machines in this order; if their racks differ, each rack is a network
    // within it. A NIC that leads to no network is left out if the machine's graph has a network. A
    // machine without a network is linked to the job's network itself, with class tcp at an unknown
    // rate. Racks are linked in the same way.
    explicit JobGraph(std::span<const JobMachine> machines);

    const Graph &graph() const { return graph_; }
    Graph take() && { return std::move(graph_); }
    // Returns the number of a vertex of a machine's graph; that of the machine if the vertex was
    // left out.
    uint32_t number_of(size_t machine, uint32_t vertex) const;

private:
    void add_machine(const JobMachine &machine, uint32_t network);
    uint32_t network_of(const JobMachine &machine);

    Graph graph_;
    std::vector<std::string> racks_; // of graph_'s vertices 1, 2, ...
    std::vector<std::vector<uint32_t>> numbers_;
};

// Returns on one machine's graph the GPU with this bus id, otherwise the smallest NUMA node that
// has all of these processors, otherwise the machine.
uint32_t place_of(const Graph &graph, const CpuSet &cpus, std::string_view bus_id);

// Returns the number of the NUMA node that contains the place; nothing if there is none, or if the
// machine has only one.
std::optional<uint32_t> numa_number(const Graph &graph, uint32_t place);

} // namespace qccl
