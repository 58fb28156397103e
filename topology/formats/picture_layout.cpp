// Computes widths from the leaves upwards, then places the parts from the outermost network
// inwards.
#include "topology/formats/picture_svg.hpp"

#include "topology/formats/topology_report.hpp"

#include <algorithm>

namespace qccl {

namespace {

constexpr double leaf_width = 78, leaf_height = 60, gap = 8, frame_gap = 18;
constexpr double bridge_width = 78, bridge_height = 18, row_gap = 24;
constexpr double numa_width = 116, numa_height = 46;
constexpr double title_height = 26, bar_height = 14, arc_band_height = 120, upper_band_height = 74;
constexpr double least_machine_width = 170;

bool is_leaf(VertexKind kind) { return kind == VertexKind::gpu || kind == VertexKind::nic; }

// Where the rows of a machine begin.
struct Rows {
    double bus = 0, package = 0, numa = 0, first_bridge = 0, leaf = 0;

    double bridge(uint32_t depth) const { return first_bridge + depth * (bridge_height + row_gap); }
};

class LayoutBuilder {
public:
    LayoutBuilder(const Graph &graph, std::span<const uint32_t> places, size_t rings)
        : graph_(graph), likeness_(graph), has_place_(places.begin(), places.end()),
          rings_(static_cast<double>(rings)) {}
    PictureLayout build();

private:
    double width_of(uint32_t vertex);
    double children_width(uint32_t vertex);
    uint32_t bridges_below(uint32_t vertex) const;
    bool has_arcs(uint32_t vertex) const;
    bool has_bus(uint32_t machine) const;
    bool has_leaves(uint32_t vertex) const;
    // Returns how many parts of this kind in the machine have ranks.
    size_t places_in(uint32_t machine, VertexKind kind) const;
    size_t count_columns(uint32_t vertex, bool folds) const;
    std::vector<AlikeRun> members(uint32_t network) const;

    Rect place(uint32_t vertex, double x, double y); // a network, machine or NVSwitch
    Rect place_network(uint32_t network, double x, double y);
    Rect place_machine(uint32_t machine, double x, double y);
    Rows rows_of(uint32_t machine, double y) const;
    void place_part(uint32_t vertex, double x, uint32_t depth, const Rows &rows);

    const Graph &graph_;
    const Likeness likeness_;
    const std::set<uint32_t> has_place_;
    const double rings_;
    bool folds_ = false;
    std::map<uint32_t, double> widths_;
    PictureLayout layout_;
};

double LayoutBuilder::children_width(uint32_t vertex) {
    double width = 0;
    for (const uint32_t child : graph_.children(vertex)) {
        if (graph_.vertex(child).kind == VertexKind::nvswitch) continue;
        width += (width == 0 ? 0 : gap) + width_of(child);
    }
    return width;
}

double LayoutBuilder::width_of(uint32_t vertex) {
    if (const auto known = widths_.find(vertex); known != widths_.end()) return known->second;
    const VertexKind kind = graph_.vertex(vertex).kind;
    double width = is_leaf(kind) ? leaf_width : children_width(vertex);
    if (kind == VertexKind::pci) width = std::max(width, bridge_width);
    if (kind == VertexKind::numa) width = std::max(width, numa_width);
    if (kind == VertexKind::package) width = std::max(width, numa_width) + 2 * gap;
    if (kind == VertexKind::machine) width = std::max(width + 2 * frame_gap, least_machine_width);
    return widths_[vertex] = width;
}

uint32_t LayoutBuilder::bridges_below(uint32_t vertex) const {
    uint32_t most = 0;
    for (const uint32_t child : graph_.children(vertex))
        most = std::max(most, bridges_below(child) +
                                  (graph_.vertex(child).kind == VertexKind::pci ? 1 : 0));
    return most;
}

// Whether a GPU in this part has a link to another GPU.
bool LayoutBuilder::has_arcs(uint32_t vertex) const {
    const auto is_gpu = [&](uint32_t each) { return graph_.vertex(each).kind == VertexKind::gpu; };
    if (is_gpu(vertex))
        return std::ranges::any_of(graph_.links_of(vertex), [&](uint32_t number) {
            return is_gpu(graph_.link(number).other(vertex));
        });
    return std::ranges::any_of(graph_.children(vertex),
                               [&](uint32_t child) { return has_arcs(child); });
}

// A machine with one package or NUMA node needs no bus.
bool LayoutBuilder::has_bus(uint32_t machine) const {
    size_t hanging = 0;
    for (const uint32_t child : graph_.children(machine))
        hanging += graph_.vertex(child).kind != VertexKind::nvswitch;
    return hanging > 1;
}

size_t LayoutBuilder::places_in(uint32_t machine, VertexKind kind) const {
    return static_cast<size_t>(std::ranges::count_if(has_place_, [&](uint32_t place) {
        return graph_.vertex(place).kind == kind && graph_.machine_of(place) == machine;
    }));
}

bool LayoutBuilder::has_leaves(uint32_t vertex) const {
    return is_leaf(graph_.vertex(vertex).kind) ||
           std::ranges::any_of(graph_.children(vertex),
                               [&](uint32_t child) { return has_leaves(child); });
}

size_t LayoutBuilder::count_columns(uint32_t vertex, bool folds) const {
    if (is_leaf(graph_.vertex(vertex).kind)) return 1;
    size_t columns = graph_.vertex(vertex).kind == VertexKind::numa ? 1 : 0, below = 0;
    if (graph_.vertex(vertex).kind != VertexKind::network || !folds) {
        for (const uint32_t child : graph_.children(vertex)) below += count_columns(child, folds);
        return std::max(columns, below);
    }
    for (const AlikeRun &run : alike_runs(graph_, likeness_, vertex))
        columns += count_columns(run.first, folds);
    return columns;
}

std::vector<AlikeRun> LayoutBuilder::members(uint32_t network) const {
    if (folds_) return alike_runs(graph_, likeness_, network);
    std::vector<AlikeRun> all;
    for (const uint32_t child : graph_.children(network)) all.push_back({child, 1});
    return all;
}

Rows LayoutBuilder::rows_of(uint32_t machine, double y) const {
    Rows rows;
    const bool has_packages = std::ranges::any_of(graph_.children(machine), [&](uint32_t child) {
        return graph_.vertex(child).kind == VertexKind::package;
    });
    rows.bus = y + title_height + 4;
    rows.package = rows.bus + (has_bus(machine) ? bar_height + row_gap : 0) +
                   (places_in(machine, VertexKind::numa) > 1 ? upper_band_height : 0);
    rows.numa = rows.package + (has_packages ? 22 : 0);
    rows.first_bridge = rows.numa + numa_height + (has_packages ? gap : 0) + row_gap;
    rows.leaf = rows.bridge(bridges_below(machine));
    return rows;
}

void LayoutBuilder::place_part(uint32_t vertex, double x, uint32_t depth, const Rows &rows) {
    const VertexKind kind = graph_.vertex(vertex).kind;
    const double width = width_of(vertex);
    Rect &rect = layout_.rects[vertex];
    if (is_leaf(kind)) {
        rect = {x, rows.leaf, width, leaf_height};
        return;
    }
    if (kind == VertexKind::pci)
        rect = {x + (width - bridge_width) / 2, rows.bridge(depth), bridge_width, bridge_height};
    else if (kind == VertexKind::numa)
        rect = {x, rows.numa, width, numa_height};
    else
        rect = {x, rows.package, width, rows.numa + numa_height + gap - rows.package};
    double at = x + (width - children_width(vertex)) / 2;
    for (const uint32_t child : graph_.children(vertex)) {
        place_part(child, at, depth + (kind == VertexKind::pci), rows);
        at += width_of(child) + gap;
    }
}

Rect LayoutBuilder::place_machine(uint32_t machine, double x, double y) {
    const double width = width_of(machine);
    const Rows rows = rows_of(machine, y);
    double at = x + (width - children_width(machine)) / 2;
    std::vector<uint32_t> switches;
    for (const uint32_t child : graph_.children(machine)) {
        if (graph_.vertex(child).kind == VertexKind::nvswitch) {
            switches.push_back(child);
            continue;
        }
        place_part(child, at, 0, rows);
        at += width_of(child) + gap;
    }
    if (has_bus(machine))
        layout_.bars[machine] = {x + frame_gap, rows.bus, width - 2 * frame_gap, bar_height / 2};
    double bottom = has_leaves(machine) ? rows.leaf + leaf_height : rows.first_bridge - gap;
    for (const uint32_t nvswitch : switches) {
        layout_.rects[nvswitch] = {x + frame_gap, bottom + row_gap, width - 2 * frame_gap,
                                   bar_height};
        bottom += row_gap + bar_height;
    }
    layout_.arc_tops[machine] = bottom;
    bottom += has_arcs(machine) ? arc_band_height : gap;
    layout_.strip_tops[machine] = bottom;
    if (places_in(machine, VertexKind::gpu) > 0) bottom += rings_ * strip_height;
    bottom += gap;
    return layout_.rects[machine] = {x, y, width, bottom - y};
}

Rect LayoutBuilder::place_network(uint32_t network, double x, double y) {
    const bool is_outermost = graph_.vertex(network).parent == no_vertex;
    const double inset = is_outermost ? 0 : frame_gap;
    const double top = y + (is_outermost ? 0 : title_height);
    double right = x + inset, bottom = top;
    std::vector<uint32_t> switches;
    for (const AlikeRun &run : members(network)) {
        if (graph_.vertex(run.first).kind == VertexKind::nvswitch) {
            switches.push_back(run.first);
            continue;
        }
        const Rect placed = place(run.first, right, top);
        layout_.counts[run.first] = run.count;
        bottom = std::max(bottom, placed.bottom());
        right = placed.right() + frame_gap;
    }
    const double width = std::max(right - frame_gap - x - inset, least_machine_width);
    for (const uint32_t nvswitch : switches) {
        layout_.rects[nvswitch] = {x + inset, bottom + row_gap, width, bar_height};
        bottom += row_gap + bar_height;
    }
    layout_.bars[network] = {x + inset, bottom + 2 * row_gap, width, 1.5 * bar_height};
    bottom = layout_.bars[network].bottom() + (is_outermost ? 0 : gap);
    return layout_.rects[network] = {x, y, width + 2 * inset, bottom - y};
}

Rect LayoutBuilder::place(uint32_t vertex, double x, double y) {
    return graph_.vertex(vertex).kind == VertexKind::network ? place_network(vertex, x, y)
                                                             : place_machine(vertex, x, y);
}

PictureLayout LayoutBuilder::build() {
    static constexpr size_t most_columns = 36;
    folds_ = count_columns(0, false) > most_columns;
    const Rect all = place(0, frame_gap, frame_gap);
    layout_.width = all.right() + frame_gap;
    layout_.height = all.bottom() + frame_gap;
    return std::move(layout_);
}

} // namespace

PictureLayout lay_out_picture(const Graph &graph, std::span<const uint32_t> places, size_t rings) {
    return LayoutBuilder(graph, places, rings).build();
}

} // namespace qccl
