// The graph's vertices and links, and the checks that every source's graph has to pass.
#include "topology/graph.hpp"

#include <array>
#include <cmath>
#include <set>
#include <utility>

namespace qccl {

namespace {

constexpr std::array<std::string_view, vertex_kinds> kind_names = {
    "network", "machine", "package", "numa", "pci", "nvswitch", "gpu", "nic"};

bool may_contain(const Vertex &outer, const Vertex &inner) {
    switch (inner.kind) {
    case VertexKind::network:
    case VertexKind::machine: return outer.kind == VertexKind::network;
    case VertexKind::nvswitch: // it may belong to a rack, in systems with NVLink between machines
    case VertexKind::package:
    case VertexKind::numa:
    case VertexKind::pci:
    case VertexKind::gpu:
    case VertexKind::nic: break;
    }
    if (outer.kind == VertexKind::network) return inner.kind == VertexKind::nvswitch;
    return outer.kind != VertexKind::gpu && outer.kind != VertexKind::nic &&
           outer.kind != VertexKind::nvswitch;
}

Error refuse(std::string_view source, const std::string &sentence) {
    return Error::make(Code::invalid_argument, "%.100s: %.380s", std::string(source).c_str(),
                       sentence.c_str());
}

Done check_vertices(const Graph &graph, std::string_view source) {
    std::set<std::pair<uint32_t, std::string_view>> bus_ids; // each with its machine
    for (uint32_t i = 0; i < graph.vertices().size(); i++) {
        const Vertex &vertex = graph.vertex(i);
        if (vertex.parent != no_vertex && vertex.parent >= i)
            return refuse(source, describe(graph, i) + " lies in a part that stands after it");
        if (vertex.parent != no_vertex && !may_contain(graph.vertex(vertex.parent), vertex))
            return refuse(source,
                          describe(graph, i) + " cannot lie in " + describe(graph, vertex.parent));
        const bool is_outside =
            vertex.kind == VertexKind::machine || vertex.kind == VertexKind::network;
        if (vertex.parent == no_vertex && !is_outside)
            return refuse(source, describe(graph, i) + " lies in no machine");
        if (!vertex.bus_id.empty() && !bus_ids.insert({graph.machine_of(i), vertex.bus_id}).second)
            return refuse(source, "two parts of one machine have the bus id " + vertex.bus_id);
    }
    return {};
}

bool is_measure(double value) { return std::isfinite(value) && value >= 0; }

Done check_links(const Graph &graph, std::string_view source) {
    for (const Link &link : graph.links()) {
        const std::string ends = describe(graph, link.from) + " and " + describe(graph, link.to);
        if (link.from == link.to && graph.vertex(link.from).kind != VertexKind::numa)
            return refuse(source, describe(graph, link.from) + " has a link to itself");
        if (!is_measure(link.bytes_per_ns) || !is_measure(link.latency_ns))
            return refuse(source, "the link between " + ends +
                                      " has a rate or latency that is negative or no number");
    }
    return {};
}

} // namespace

std::string_view name(VertexKind kind) { return kind_names[static_cast<size_t>(kind)]; }

uint32_t Graph::add(Vertex vertex) {
    const auto number = static_cast<uint32_t>(vertices_.size());
    if (vertex.parent < number) children_[vertex.parent].push_back(number);
    vertices_.push_back(std::move(vertex));
    links_of_.emplace_back();
    children_.emplace_back();
    return number;
}

uint32_t Graph::add(const Graph &other, uint32_t parent) {
    const auto first = static_cast<uint32_t>(vertices_.size());
    for (Vertex vertex : other.vertices_) {
        vertex.parent = vertex.parent == no_vertex ? parent : vertex.parent + first;
        add(std::move(vertex));
    }
    for (Link link : other.links_) {
        link.from += first;
        link.to += first;
        connect(link);
    }
    return first;
}

void Graph::connect(const Link &link) {
    const auto number = static_cast<uint32_t>(links_.size());
    links_.push_back(link);
    links_of_[link.from].push_back(number);
    if (link.to != link.from) links_of_[link.to].push_back(number);
}

std::vector<uint32_t> Graph::of_kind(VertexKind kind) const {
    std::vector<uint32_t> found;
    for (uint32_t i = 0; i < vertices_.size(); i++)
        if (vertices_[i].kind == kind) found.push_back(i);
    return found;
}

uint32_t Graph::machine_of(uint32_t vertex) const {
    while (vertex != no_vertex && vertices_[vertex].kind != VertexKind::machine)
        vertex = vertices_[vertex].parent;
    return vertex;
}

uint32_t Graph::numa_of(uint32_t vertex) const {
    while (vertex != no_vertex && vertices_[vertex].kind != VertexKind::numa)
        vertex = vertices_[vertex].parent;
    return vertex;
}

bool Graph::is_connected() const {
    if (is_empty()) return false;
    std::vector<bool> is_reached(vertices_.size());
    std::vector<uint32_t> waiting = {0};
    is_reached[0] = true;
    size_t reached = 0;
    while (!waiting.empty()) {
        const uint32_t vertex = waiting.back();
        waiting.pop_back();
        reached++;
        for (const uint32_t number : links_of_[vertex]) {
            const uint32_t next = links_[number].other(vertex);
            if (is_reached[next]) continue;
            is_reached[next] = true;
            waiting.push_back(next);
        }
    }
    return reached == vertices_.size();
}

Done check(const Graph &graph, std::string_view source) {
    if (graph.of_kind(VertexKind::machine).empty())
        return refuse(source, "there is no machine in it");
    QCCL_TRY(check_vertices(graph, source));
    QCCL_TRY(check_links(graph, source));
    if (!graph.is_connected()) return refuse(source, "not all of its parts are connected by links");
    return {};
}

Graph named(const Graph &graph, std::string_view machine) {
    Graph copy;
    for (Vertex vertex : graph.vertices()) {
        if (vertex.kind == VertexKind::machine) vertex.name = machine;
        copy.add(std::move(vertex));
    }
    for (const Link &link : graph.links()) copy.connect(link);
    return copy;
}

std::string describe(const Graph &graph, uint32_t number) {
    const Vertex &vertex = graph.vertex(number);
    std::string text = std::string(name(vertex.kind)) + " " + std::to_string(vertex.number);
    if (!vertex.bus_id.empty()) return text + " (" + vertex.bus_id + ")";
    return vertex.name.empty() ? text : text + " (" + vertex.name + ")";
}

} // namespace qccl
