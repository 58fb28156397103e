// Copies the machines' graphs into the job's graph, and looks up the places of ranks.
#include "topology/job_graph.hpp"

#include <algorithm>

namespace qccl {

namespace {

bool is_network(const Graph &graph, uint32_t vertex) {
    return graph.vertex(vertex).kind == VertexKind::network;
}

bool leads_to_a_network(const Graph &graph, uint32_t vertex) {
    return std::ranges::any_of(graph.links_of(vertex), [&](uint32_t link) {
        return is_network(graph, graph.link(link).other(vertex));
    });
}

bool has_several(std::span<const JobMachine> machines) {
    return std::ranges::any_of(
        machines, [&](const JobMachine &machine) { return machine.rack != machines.front().rack; });
}

} // namespace

JobGraph::JobGraph(std::span<const JobMachine> machines) {
    if (machines.size() == 1) {
        graph_ = named(*machines[0].graph, machines[0].name);
        return;
    }
    graph_.add({.kind = VertexKind::network});
    const bool has_racks = has_several(machines);
    for (const JobMachine &machine : machines)
        if (has_racks) network_of(machine);
    for (const JobMachine &machine : machines)
        add_machine(machine, has_racks ? network_of(machine) : 0);
}

// Returns the network of the machine's rack, and adds it if it is new.
uint32_t JobGraph::network_of(const JobMachine &machine) {
    const auto known = std::ranges::find(racks_, machine.rack);
    if (known != racks_.end()) return static_cast<uint32_t>(known - racks_.begin()) + 1;
    const auto number = static_cast<uint32_t>(racks_.size());
    racks_.push_back(machine.rack);
    const uint32_t rack = graph_.add(
        {.kind = VertexKind::network, .parent = 0, .name = machine.rack, .number = number});
    graph_.connect({0, rack, LinkClass::tcp});
    return rack;
}

void JobGraph::add_machine(const JobMachine &machine, uint32_t network) {
    const Graph &from = *machine.graph;
    std::vector<uint32_t> numbers(from.vertices().size(), no_vertex);
    const bool has_network = is_network(from, 0);
    for (uint32_t i = 0; i < numbers.size(); i++) {
        if (is_network(from, i)) {
            numbers[i] = network;
            continue;
        }
        Vertex vertex = from.vertex(i);
        if (has_network && vertex.kind == VertexKind::nic && !leads_to_a_network(from, i)) continue;
        vertex.parent = vertex.parent == no_vertex ? network : numbers[vertex.parent];
        if (vertex.kind == VertexKind::machine) {
            vertex.name = machine.name;
            vertex.number = static_cast<uint32_t>(numbers_.size());
        }
        numbers[i] = graph_.add(std::move(vertex));
    }
    for (Link link : from.links()) {
        link.from = numbers[link.from];
        link.to = numbers[link.to];
        if (link.from != no_vertex && link.to != no_vertex) graph_.connect(link);
    }
    if (!has_network) graph_.connect({numbers[0], network, LinkClass::tcp});
    numbers_.push_back(std::move(numbers));
}

uint32_t JobGraph::number_of(size_t machine, uint32_t vertex) const {
    if (numbers_.empty()) return vertex;
    const uint32_t number = numbers_[machine][vertex];
    if (number != no_vertex) return number;
    return *std::ranges::find_if(numbers_[machine], [&](uint32_t each) {
        return each != no_vertex && graph_.vertex(each).kind == VertexKind::machine;
    });
}

uint32_t place_of(const Graph &graph, const CpuSet &cpus, std::string_view bus_id) {
    for (const uint32_t gpu : graph.of_kind(VertexKind::gpu))
        if (!bus_id.empty() && graph.vertex(gpu).bus_id == bus_id) return gpu;
    uint32_t best = no_vertex;
    for (const uint32_t numa : graph.of_kind(VertexKind::numa)) {
        const CpuSet &near = graph.vertex(numa).cpus;
        if (cpus.is_empty() || !near.contains(cpus)) continue;
        if (best == no_vertex || near.size() < graph.vertex(best).cpus.size()) best = numa;
    }
    return best != no_vertex ? best : graph.of_kind(VertexKind::machine).front();
}

std::optional<uint32_t> numa_number(const Graph &graph, uint32_t place) {
    const uint32_t numa = graph.numa_of(place);
    if (numa == no_vertex) return std::nullopt;
    const uint32_t machine = graph.machine_of(numa);
    for (const uint32_t other : graph.of_kind(VertexKind::numa))
        if (other != numa && graph.machine_of(other) == machine) return graph.vertex(numa).number;
    return std::nullopt;
}

} // namespace qccl
