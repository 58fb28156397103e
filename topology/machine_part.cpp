// Copies a machine's vertices and the links between them.
#include "topology/machine_part.hpp"

#include <algorithm>

namespace qccl {

namespace {

void add_all(const Graph &graph, uint32_t original, uint32_t parent, MachinePart &part) {
    Vertex vertex = graph.vertex(original);
    vertex.parent = parent;
    if (parent == no_vertex) {
        vertex.name.clear();
        vertex.number = 0;
    }
    const uint32_t number = part.graph.add(std::move(vertex));
    part.originals.push_back(original);
    for (const uint32_t child : graph.children(original)) add_all(graph, child, number, part);
}

} // namespace

uint32_t MachinePart::number_of(uint32_t original) const {
    return static_cast<uint32_t>(std::ranges::find(originals, original) - originals.begin());
}

MachinePart machine_part(const Graph &graph, uint32_t machine) {
    MachinePart part;
    add_all(graph, machine, no_vertex, part);
    for (uint32_t i = 0; i < part.originals.size(); i++)
        for (const uint32_t number : graph.links_of(part.originals[i])) {
            Link link = graph.link(number);
            const uint32_t from = part.number_of(link.from), to = part.number_of(link.to);
            // Each link is taken once, at its `from` end.
            if (from >= part.originals.size() || to >= part.originals.size() || from != i) continue;
            link.from = from;
            link.to = to;
            part.graph.connect(link);
        }
    return part;
}

} // namespace qccl
