// Formats names, rates and links.
#include "topology/part_text.hpp"

#include <algorithm>
#include <cstdio>

namespace qccl {

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

} // namespace qccl
