// Formats names, rates and links. Describes each machine and network as text; equal texts mean that
// the two are built alike.
#include "topology/formats/report_parts.hpp"

#include <algorithm>
#include <cstdio>

namespace qccl {

// ---- Texts of parts and links

namespace {

// Returns the bytes of the UTF-8 character that the text begins with; 0: it is none.
size_t character_bytes(std::string_view text) {
    const auto first = static_cast<unsigned char>(text[0]);
    const size_t bytes = first < 0x80                    ? 1
                         : first >= 0xc2 && first < 0xe0 ? 2
                         : first >= 0xe0 && first < 0xf0 ? 3
                         : first >= 0xf0 && first < 0xf5 ? 4
                                                         : 0;
    if (bytes > text.size()) return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
    // Refuses overlong forms, surrogates, control characters from U+0080 on, and what is beyond
    // U+10FFFF.
    const auto second = static_cast<unsigned char>(bytes > 1 ? text[1] : 0);
    const bool is_wrong = (first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
                          (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90) ||
                          (first == 0xc2 && second < 0xa0);
    return is_wrong ? 0 : bytes;
}

} // namespace

std::string printable(std::string_view text) {
    std::string shown;
    while (!text.empty()) {
        const auto first = static_cast<unsigned char>(text[0]);
        const size_t bytes = first < ' ' || first == 0x7f ? 0 : character_bytes(text);
        if (bytes == 0)
            shown += '?';
        else
            shown += text.substr(0, bytes);
        text.remove_prefix(std::max<size_t>(bytes, 1));
    }
    return shown;
}

std::string part_label(const Vertex &vertex) {
    const std::string number = std::to_string(vertex.number);
    switch (vertex.kind) {
    case VertexKind::network: return vertex.name.empty() ? "network" : printable(vertex.name);
    case VertexKind::machine:
        return vertex.name.empty() ? "machine " + number : printable(vertex.name);
    case VertexKind::package: return "package " + number;
    case VertexKind::numa: return "NUMA " + number;
    case VertexKind::pci: return "PCI";
    case VertexKind::nvswitch: return "NVSwitch";
    case VertexKind::gpu: return "GPU " + number;
    case VertexKind::nic: return "NIC " + number;
    }
    return {};
}

std::string rate_number(double bytes_per_ns) {
    if (bytes_per_ns <= 0) return "?";
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", bytes_per_ns);
    if (bytes_per_ns >= 999.5) std::snprintf(text, sizeof text, "%.0f", bytes_per_ns);
    return text;
}

std::string link_text(const Link &link) {
    std::string text(name(link.link_class));
    if (link.bytes_per_ns > 0)
        text.append(" ").append(rate_number(link.bytes_per_ns)).append(" GB/s");
    return link.width > 1 ? text + " x" + std::to_string(link.width) : text;
}

uint32_t link_to_parent(const Graph &graph, uint32_t vertex) {
    for (const uint32_t number : graph.links_of(vertex))
        if (graph.link(number).other(vertex) == graph.vertex(vertex).parent &&
            graph.link(number).link_class != LinkClass::nvlink)
            return number;
    return no_link;
}

// ---- Machines built alike

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
