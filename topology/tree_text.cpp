// Prints the parts of a graph line by line, from the outermost inwards.
#include "topology/tree_text.hpp"

#include "topology/alike.hpp"
#include "topology/part_text.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace qccl {

namespace {

// GPUs and NICs list their links to parts of these kinds.
bool is_listed_elsewhere(VertexKind kind) {
    return kind == VertexKind::nvswitch || kind == VertexKind::numa || kind == VertexKind::network;
}

// "GPU 1-3, GPU 6, network"
std::string labels_of(const Graph &graph, const std::vector<uint32_t> &vertices) {
    std::string text;
    for (size_t i = 0; i < vertices.size();) {
        const Vertex &first = graph.vertex(vertices[i]);
        size_t end = i + 1;
        while (end < vertices.size() && graph.vertex(vertices[end]).kind == first.kind &&
               first.kind == VertexKind::gpu &&
               graph.vertex(vertices[end]).number == first.number + (end - i))
            end++;
        if (!text.empty()) text += ", ";
        text += part_label(first);
        if (end - i > 1) text.append("-").append(std::to_string(first.number + (end - i) - 1));
        i = end;
    }
    return text;
}

class TreeText {
public:
    explicit TreeText(const Graph &graph) : graph_(graph), likeness_(graph) {}
    std::string print() {
        add(0, 1, 0);
        text_ += "Rates are each way, of several lanes or links (x) together; where none stands it "
                 "is unknown.\n";
        return std::move(text_);
    }

private:
    void add(uint32_t vertex, uint32_t count, size_t depth);
    std::string facts(const Vertex &part) const;
    std::string other_links(uint32_t vertex) const;

    const Graph &graph_;
    const Likeness likeness_;
    std::string text_;
};

std::string TreeText::facts(const Vertex &part) const {
    std::string text;
    const bool is_named = part.kind == VertexKind::network || part.kind == VertexKind::machine;
    if (!is_named && !part.name.empty()) text.append(" ").append(printable(part.name));
    if (!part.bus_id.empty()) text.append(" ").append(printable(part.bus_id));
    if (!part.arch.empty()) text.append(" ").append(printable(part.arch));
    if (!part.cpus.is_empty())
        text += ", " + std::to_string(part.cpus.size()) +
                (part.cpus.size() == 1 ? " processor" : " processors");
    if (part.gpudirect)
        text += ", GPUDirect RDMA";
    else if (part.rdma)
        text += ", RDMA";
    return text;
}

// Returns "; xgmi 64 GB/s to GPU 1, GPU 2", with the links of one kind together.
std::string TreeText::other_links(uint32_t vertex) const {
    const uint32_t to_parent = link_to_parent(graph_, vertex);
    std::map<std::tuple<LinkClass, double, uint32_t>, std::vector<uint32_t>> kinds;
    for (const uint32_t number : graph_.links_of(vertex)) {
        const Link &link = graph_.link(number);
        const uint32_t other = link.other(vertex);
        // Parts inside this one list the link themselves.
        if (number == to_parent || graph_.vertex(other).parent == vertex) continue;
        if (vertex == other || !is_listed_elsewhere(graph_.vertex(vertex).kind))
            kinds[{link.link_class, -link.bytes_per_ns, link.width}].push_back(number);
    }
    std::string text;
    for (const auto &[kind, numbers] : kinds) {
        const Link &link = graph_.link(numbers[0]);
        if (link.from == link.to && link.bytes_per_ns <= 0) continue;
        text += "; ";
        if (link.from == link.to) {
            text.append("memory ").append(rate_number(link.bytes_per_ns)).append(" GB/s");
            continue;
        }
        text += link_text(link);
        std::vector<uint32_t> others;
        for (const uint32_t number : numbers) others.push_back(graph_.link(number).other(vertex));
        text.append(" to ").append(labels_of(graph_, others));
    }
    return text;
}

void TreeText::add(uint32_t vertex, uint32_t count, size_t depth) {
    const Vertex &part = graph_.vertex(vertex);
    text_ += std::string(2 * depth, ' ') + part_label(part) + facts(part);
    if (count > 1)
        text_.append(" and others alike, ").append(std::to_string(count)).append(" together");
    if (const uint32_t link = link_to_parent(graph_, vertex); link != no_link)
        text_.append(" [").append(link_text(graph_.link(link))).append("]");
    text_ += other_links(vertex) + "\n";
    for (const AlikeRun &run : alike_runs(graph_, likeness_, vertex))
        add(run.first, run.count, depth + 1);
}

} // namespace

std::string print_tree(const Graph &graph) { return TreeText(graph).print(); }

} // namespace qccl
