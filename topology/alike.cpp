// Describes each machine and network as text; equal texts mean that the two are built alike.
#include "topology/alike.hpp"

namespace qccl {

namespace {

// Numbers the parts of a machine in an order that depends only on how the machine is built.
void number_parts(const Graph &graph, uint32_t vertex, std::map<uint32_t, size_t> &places) {
    places.emplace(vertex, places.size());
    for (const uint32_t child : graph.children(vertex)) number_parts(graph, child, places);
}

std::string text_of(const Link &link) {
    return std::to_string(static_cast<unsigned>(link.link_class)) + ' ' +
           std::to_string(link.bytes_per_ns) + ' ' + std::to_string(link.latency_ns) + ' ' +
           std::to_string(link.width) + ';';
}

} // namespace

std::string Likeness::describe_links(uint32_t vertex,
                                     const std::map<uint32_t, size_t> &places) const {
    std::string text;
    for (const uint32_t number : graph_.links_of(vertex)) {
        const Link &link = graph_.link(number);
        const auto other = places.find(link.other(vertex));
        // For a link that leaves the machine, the number of levels up counts.
        size_t up = 0;
        for (uint32_t at = vertex;
             other == places.end() && at != no_vertex && at != link.other(vertex);
             at = graph_.vertex(at).parent)
            up++;
        text +=
            (other == places.end() ? "up " + std::to_string(up) : std::to_string(other->second));
        text += ' ' + text_of(link);
    }
    return text;
}

std::string Likeness::describe_machine(uint32_t machine) const {
    std::map<uint32_t, size_t> places;
    number_parts(graph_, machine, places);
    std::vector<std::string> parts(places.size());
    for (const auto &[number, place] : places) {
        const Vertex &part = graph_.vertex(number);
        const size_t parent = number == machine ? 0 : places.at(part.parent);
        parts[place] = std::string(name(part.kind)) + ' ' + std::to_string(parent) + ' ' +
                       part.arch + ' ' + part.cpus.print() + (part.rdma ? " r" : " ") +
                       (part.gpudirect ? "g " : " ") + describe_links(number, places);
    }
    std::string text;
    for (const std::string &part : parts) text += part + '\n';
    return text;
}

Likeness::Likeness(const Graph &graph) : graph_(graph), shapes_(graph.vertices().size()) {
    std::map<std::string, uint32_t> known;
    // Children come after their parents in the graph, so a pass from the end knows their shapes.
    for (auto i = static_cast<uint32_t>(shapes_.size()); i-- > 0;) {
        const VertexKind kind = graph.vertex(i).kind;
        if (kind != VertexKind::machine && kind != VertexKind::network) continue;
        std::string text;
        if (kind == VertexKind::machine) {
            text = describe_machine(i);
        } else {
            text = "network ";
            for (const uint32_t child : graph.children(i))
                text += std::to_string(shapes_[child]) + ' ';
            for (const uint32_t number : graph.links_of(i)) {
                const Link &link = graph.link(number);
                if (link.other(i) == graph.vertex(i).parent) text += text_of(link);
            }
        }
        shapes_[i] = known.emplace(std::move(text), known.size() + 1).first->second;
    }
}

std::vector<AlikeRun> alike_runs(const Graph &graph, const Likeness &likeness, uint32_t network) {
    std::vector<AlikeRun> runs;
    for (const uint32_t child : graph.children(network)) {
        const bool goes_on = !runs.empty() && likeness.shape(child) != 0 &&
                             likeness.shape(child) == likeness.shape(runs.back().first);
        if (goes_on)
            runs.back().count++;
        else
            runs.push_back({child, 1});
    }
    return runs;
}

} // namespace qccl
