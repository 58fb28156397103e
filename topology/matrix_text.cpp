// Finds the paths of each matrix and prints them in columns.
#include "topology/matrix_text.hpp"

#include "topology/alike.hpp"
#include "topology/machine_part.hpp"
#include "topology/part_text.hpp"
#include "topology/path.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

namespace qccl {

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

} // namespace qccl
