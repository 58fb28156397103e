// Adds the drivers' links and architectures to a machine's graph.
#include "topology/gpu_links.hpp"

#include <algorithm>

namespace qccl {

namespace {

using Gpus = std::map<std::string, uint32_t, std::less<>>; // vertices by bus id

Gpus gpus_of(const Graph &machine) {
    Gpus gpus;
    for (const uint32_t gpu : machine.of_kind(VertexKind::gpu))
        if (!machine.vertex(gpu).bus_id.empty()) gpus.emplace(machine.vertex(gpu).bus_id, gpu);
    return gpus;
}

bool is_between_gpus(const Graph &graph, const Link &link) {
    const auto is_inside = [&](uint32_t vertex) {
        const VertexKind kind = graph.vertex(vertex).kind;
        return kind == VertexKind::gpu || kind == VertexKind::nvswitch;
    };
    return is_inside(link.from) && is_inside(link.to);
}

// By their two ends, the lower vertex first.
using Links = std::map<std::pair<uint32_t, uint32_t>, Link>;

void add(Links &links, const Link &link) {
    const auto ends = std::minmax(link.from, link.to);
    const auto [place, is_new] = links.emplace(ends, link);
    Link &known = place->second;
    known.from = ends.first;
    known.to = ends.second;
    if (is_new) return;
    known.width = std::min(known.width, link.width);
    known.bytes_per_ns = std::min(known.bytes_per_ns, link.bytes_per_ns);
}

} // namespace

Graph with_gpu_details(const Graph &machine, const GpuDetails &found) {
    const Gpus gpus = gpus_of(machine);
    Graph graph;
    for (Vertex vertex : machine.vertices()) {
        const auto arch = found.arch.find(vertex.bus_id);
        const bool is_told = vertex.kind == VertexKind::gpu && arch != found.arch.end();
        if (is_told && vertex.arch.empty()) vertex.arch = arch->second;
        graph.add(std::move(vertex));
    }
    for (const Link &link : machine.links()) graph.connect(link);
    const bool has_links = std::ranges::any_of(
        machine.links(), [&](const Link &link) { return is_between_gpus(machine, link); });
    if (has_links) return graph;
    Links links;
    const auto nvswitch = static_cast<uint32_t>(machine.vertices().size());
    for (const GpuLink &link : found.links) {
        const auto from = gpus.find(link.from), to = gpus.find(link.to);
        if (from == gpus.end() || from == to || (to == gpus.end() && !link.to.empty())) continue;
        add(links, {from->second, link.to.empty() ? nvswitch : to->second, link.link_class,
                    link.bytes_per_ns, 0, link.width});
    }
    const bool has_switch =
        std::ranges::any_of(links, [&](const auto &link) { return link.second.to == nvswitch; });
    if (has_switch) graph.add({.kind = VertexKind::nvswitch, .parent = 0});
    for (const auto &[ends, link] : links) graph.connect(link);
    return graph;
}

} // namespace qccl
