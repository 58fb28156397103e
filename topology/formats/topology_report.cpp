// Formats names, rates and links. Describes each machine and network as text; equal texts mean that
// the two are built alike. Prints the parts of a graph line by line from the outermost inwards,
// finds the paths of each matrix and prints them in columns, and builds the JSON document with
// nlohmann::json.
#include "topology/formats/topology_report.hpp"

#include "topology/graph.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <vector>

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

// ---- Tree

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

// ---- Matrix

namespace {

struct ClassCode {
    std::string_view code; // # stands for the number of parallel links
    std::string_view meaning;
};
constexpr std::array<ClassCode, link_classes> class_codes = {{
    {"NVS#", "through an NVSwitch, with # links"},
    {"NV#", "NVLink between the two GPUs or to the processor, # links"},
    {"XG#", "xGMI between the two GPUs, # links"},
    {"SHM", "within a NUMA node"},
    {"PCI", "PCIe, through switches or a root complex"},
    {"CPU", "between NUMA nodes or packages"},
    {"GDR", "RDMA that reaches the GPU's memory by itself"},
    {"RDMA", "InfiniBand or RoCE"},
    {"TCP", "sockets"},
}};

class MatrixText {
public:
    explicit MatrixText(const Graph &graph) : graph_(graph), likeness_(graph) {}
    std::string print();

private:
    void add_machine(uint32_t machine, size_t alike);
    void add_rows(const Graph &part, const std::vector<uint32_t> &vertices);
    void add_way_between(const std::vector<uint32_t> &machines);
    void add_legend();
    std::string cell(const Graph &graph, const std::optional<Path> &path);

    const Graph &graph_;
    const Likeness likeness_;
    std::set<LinkClass> seen_;
    std::string text_;
};

// Returns the GPUs, then the NICs, then the NUMA nodes.
std::vector<uint32_t> shown_parts(const Graph &part) {
    std::vector<uint32_t> all;
    for (const VertexKind kind : {VertexKind::gpu, VertexKind::nic, VertexKind::numa}) {
        std::vector<uint32_t> some = part.of_kind(kind);
        std::ranges::stable_sort(some, {}, [&](uint32_t each) { return part.vertex(each).number; });
        all.insert(all.end(), some.begin(), some.end());
    }
    return all;
}

std::string MatrixText::cell(const Graph &graph, const std::optional<Path> &path) {
    if (!path) return "-";
    seen_.insert(path->link_class);
    std::string text(class_codes[static_cast<size_t>(path->link_class)].code);
    if (text.ends_with('#')) {
        text.pop_back();
        uint32_t width = UINT32_MAX;
        for (const Hop &hop : path->hops) width = std::min(width, graph.link(hop.link).width);
        text += std::to_string(width);
    }
    // The search uses a typical rate in place of an unknown one; such a rate is not printed.
    for (const Hop &hop : path->hops)
        if (graph.link(hop.link).bytes_per_ns <= 0) return text;
    return text + " " + rate_number(path->bytes_per_ns);
}

void MatrixText::add_rows(const Graph &part, const std::vector<uint32_t> &vertices) {
    const Capacities capacities(part);
    std::vector<std::vector<std::string>> rows = {{""}};
    for (const uint32_t vertex : vertices) rows[0].push_back(part_label(part.vertex(vertex)));
    for (const uint32_t from : vertices) {
        std::vector<std::string> &row =
            rows.emplace_back(std::vector<std::string>{part_label(part.vertex(from))});
        for (const uint32_t to : vertices)
            row.push_back(from == to ? "X" : cell(part, find_path(part, capacities, from, to)));
    }
    std::vector<size_t> widths(rows[0].size());
    for (const auto &row : rows)
        for (size_t i = 0; i < row.size(); i++) widths[i] = std::max(widths[i], row[i].size());
    for (const auto &row : rows) {
        std::string line;
        for (size_t i = 0; i < row.size(); i++)
            line += row[i] + std::string(widths[i] + 2 - row[i].size(), ' ');
        line.erase(line.find_last_not_of(' ') + 1);
        text_ += line + '\n';
    }
}

void MatrixText::add_machine(uint32_t machine, size_t alike) {
    const MachinePart part = machine_part(graph_, machine);
    std::vector<uint32_t> vertices = shown_parts(part.graph);
    static constexpr size_t most_rows = 256;
    if (vertices.empty()) return;
    if (!text_.empty()) text_ += '\n';
    text_ += part_label(graph_.vertex(machine));
    if (alike > 1)
        text_.append(" and others alike, ").append(std::to_string(alike)).append(" together");
    if (vertices.size() > most_rows) {
        text_.append(", the first ").append(std::to_string(most_rows)).append(" of ");
        text_.append(std::to_string(vertices.size())).append(" parts");
        vertices.resize(most_rows);
    }
    text_ += '\n';
    add_rows(part.graph, vertices);
}

// Prints the path from the first machine to the last one.
void MatrixText::add_way_between(const std::vector<uint32_t> &machines) {
    const auto end_of = [&](uint32_t machine) {
        const MachinePart part = machine_part(graph_, machine);
        const std::vector<uint32_t> parts = shown_parts(part.graph);
        return parts.empty() ? machine : part.originals[parts[0]];
    };
    const uint32_t from = end_of(machines.front()), to = end_of(machines.back());
    const auto path = find_path(graph_, Capacities(graph_), from, to);
    text_ += '\n';
    for (const uint32_t end : {from, to})
        text_.append(part_label(graph_.vertex(end)))
            .append(" of ")
            .append(part_label(graph_.vertex(graph_.machine_of(end))))
            .append(end == from ? " to " : ": ");
    text_.append(cell(graph_, path)).append("\n");
}

void MatrixText::add_legend() {
    text_ += "\nX     itself\n";
    for (const LinkClass link_class : seen_) {
        const ClassCode &row = class_codes[static_cast<size_t>(link_class)];
        text_.append(row.code).append(6 - row.code.size(), ' ').append(row.meaning).append("\n");
    }
    text_ +=
        "Behind the class stands the rate of the narrowest link in GB/s each way, unless one of "
        "them is unknown.\n";
}

std::string MatrixText::print() {
    const std::vector<uint32_t> machines = graph_.of_kind(VertexKind::machine);
    std::map<uint32_t, size_t> alike; // by shape
    for (const uint32_t machine : machines) alike[likeness_.shape(machine)]++;
    for (const uint32_t machine : machines) {
        const size_t count = std::exchange(alike[likeness_.shape(machine)], 0);
        if (count > 0) add_machine(machine, count);
    }
    if (machines.size() > 1) add_way_between(machines);
    add_legend();
    return std::move(text_);
}

} // namespace

std::string print_matrix(const Graph &graph) { return MatrixText(graph).print(); }

// ---- JSON

namespace {

using Json = nlohmann::ordered_json;

Json measure(double value) { return value > 0 ? Json(value) : Json(nullptr); }
Json id_of(uint32_t vertex) { return vertex == no_vertex ? Json(nullptr) : Json(vertex); }

Json node_json(const Vertex &vertex, uint32_t id) {
    Json node = {{"id", id},
                 {"kind", name(vertex.kind)},
                 {"parent", id_of(vertex.parent)},
                 {"number", vertex.number}};
    if (!vertex.name.empty()) node["name"] = vertex.name;
    if (!vertex.bus_id.empty()) node["bus_id"] = vertex.bus_id;
    if (!vertex.arch.empty()) node["arch"] = vertex.arch;
    if (!vertex.cpus.is_empty()) {
        node["cpus"] = vertex.cpus.print();
        node["processors"] = vertex.cpus.size();
    }
    if (vertex.kind == VertexKind::nic) {
        node["rdma"] = vertex.rdma;
        node["gpudirect"] = vertex.gpudirect;
    }
    return node;
}

Json link_json(const Link &link) {
    return {{"from", link.from},
            {"to", link.to},
            {"class", name(link.link_class)},
            {"gb_per_s", measure(link.bytes_per_ns)},
            {"latency_ns", measure(link.latency_ns)},
            {"width", link.width}};
}

// Prints one element per line.
void add_array(std::string &text, const char *key, const std::vector<Json> &elements) {
    text.append(",\n\"").append(key).append("\": [");
    for (size_t i = 0; i < elements.size(); i++)
        text.append(i == 0 ? "\n" : ",\n")
            .append(elements[i].dump(-1, ' ', false, Json::error_handler_t::replace));
    text += "\n]";
}

} // namespace

std::string print_graph_json(const Graph &graph, std::span<const uint32_t> places,
                             const RankOrder &order) {
    std::vector<Json> nodes, links, ranks, rings, trees;
    for (uint32_t i = 0; i < graph.vertices().size(); i++)
        nodes.push_back(node_json(graph.vertex(i), i));
    for (const Link &link : graph.links()) links.push_back(link_json(link));
    for (size_t rank = 0; rank < places.size(); rank++)
        ranks.push_back({{"node", places[rank]}, {"nic", id_of(order.nics[rank])}});
    for (const RankRing &ring : order.rings)
        rings.push_back({{"ranks", ring.ranks},
                         {"gb_per_s", measure(ring.bytes_per_ns)},
                         {"is_rate_known", ring.is_rate_known}});
    if (!order.parents.empty()) trees.push_back({{"parents", order.parents}});
    std::string text = "{\"version\": 1";
    text.append(",\n\"connected\": ").append(graph.is_connected() ? "true" : "false");
    add_array(text, "nodes", nodes);
    add_array(text, "links", links);
    add_array(text, "ranks", ranks);
    add_array(text, "rings", rings);
    add_array(text, "trees", trees);
    return text + "}\n";
}

} // namespace qccl
