// Draws the frames, the links, the rings and the parts over one another, then the legend.
#include "topology/picture_svg.hpp"

#include "topology/part_text.hpp"
#include "topology/picture_layout.hpp"
#include "topology/picture_rings.hpp"
#include "topology/svg_text.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

namespace qccl {

namespace {

constexpr const char *class_color(LinkClass link_class) {
    switch (link_class) {
    case LinkClass::nvswitch: return "#5c940d";
    case LinkClass::nvlink: return "#2f9e44";
    case LinkClass::xgmi: return "#e8590c";
    case LinkClass::shared_memory: return "#868e96";
    case LinkClass::pcie: return "#339af0";
    case LinkClass::cpu_interconnect: return "#7048e8";
    case LinkClass::gpudirect_rdma:
    case LinkClass::rdma: return "#0c8599";
    case LinkClass::tcp: return "#a61e4d";
    }
    return "#000000";
}

double width_by_rate(double bytes_per_ns) {
    return std::clamp(std::log2(1 + bytes_per_ns / 4), 1.0, 8.0);
}

class Picture {
public:
    Picture(const Graph &graph, std::span<const uint32_t> places, const RankOrder &order)
        : graph_(graph), places_(places), order_(order),
          layout_(lay_out_picture(graph, places, count_drawn(order))) {}
    std::string draw();

private:
    Stroke stroke_of(const Link &link, double opacity = 1);
    void draw_frames();
    void draw_links();
    void draw_tree_link(const Link &link, uint32_t parent, uint32_t child);
    void draw_peer_links();
    void draw_parts();
    void draw_leaf(uint32_t vertex, const Rect &rect);
    void draw_numa(uint32_t vertex, const Rect &rect);
    std::string ranks_at(uint32_t vertex) const;
    std::string size_of(uint32_t vertex) const;
    void draw_legend();

    const Graph &graph_;
    const std::span<const uint32_t> places_;
    const RankOrder &order_;
    PictureLayout layout_;
    SvgText svg_;
    std::set<std::tuple<LinkClass, double, uint32_t>> drawn_; // the greatest rate first
};

Stroke Picture::stroke_of(const Link &link, double opacity) {
    drawn_.insert({link.link_class, -link.bytes_per_ns, link.width});
    return {class_color(link.link_class), width_by_rate(link.bytes_per_ns), opacity,
            link.bytes_per_ns <= 0};
}

std::string Picture::size_of(uint32_t vertex) const {
    const auto count = layout_.counts.find(vertex);
    if (count == layout_.counts.end() || count->second < 2) return {};
    return " \u00d7 " + std::to_string(count->second) + " alike";
}

void Picture::draw_frames() {
    for (const auto &[vertex, rect] : layout_.rects) {
        const Vertex &part = graph_.vertex(vertex);
        const bool is_rack = part.kind == VertexKind::network && part.parent != no_vertex;
        if (is_rack) svg_.rectangle(rect, "#fff9db", {"#e0c97f"}, 8);
    }
    for (const auto &[vertex, rect] : layout_.rects) {
        const Vertex &part = graph_.vertex(vertex);
        const bool is_rack = part.kind == VertexKind::network && part.parent != no_vertex;
        if (part.kind == VertexKind::machine) svg_.rectangle(rect, "#f8f9fa", {"#495057"}, 8);
        if (is_rack || part.kind == VertexKind::machine)
            svg_.text({rect.x + 10, rect.y + 17}, part_label(part) + size_of(vertex),
                      {.size = 12, .anchor = "start", .is_bold = true}, rect.width - 20);
    }
    for (const auto &[vertex, rect] : layout_.rects) {
        if (graph_.vertex(vertex).kind != VertexKind::package) continue;
        svg_.rectangle(rect, "#e9ecef", {"#adb5bd"});
        const Vertex &part = graph_.vertex(vertex);
        static constexpr double least_for_name = 260; // narrow packages have arcs in their middle
        const std::string label = part_label(part);
        svg_.text({rect.x + 8, rect.y + 15},
                  rect.width < least_for_name ? label : label + " " + part.name,
                  {.anchor = "start"}, rect.width - 16);
    }
}

// The line leads down from the parent, across, and down to the child.
void Picture::draw_tree_link(const Link &link, uint32_t parent, uint32_t child) {
    const VertexKind outer = graph_.vertex(parent).kind;
    const bool has_bar = outer == VertexKind::machine || outer == VertexKind::network;
    if (has_bar && !layout_.bars.contains(parent)) return;
    if (outer == VertexKind::package && graph_.vertex(child).kind == VertexKind::numa) return;
    const Rect from = has_bar ? layout_.bars.at(parent) : layout_.rects.at(parent);
    const Rect to = layout_.rects.at(child);
    const Stroke stroke = stroke_of(link);
    if (outer == VertexKind::network) {
        // A rack's own bar, or a machine, stands above the bar of the network around it.
        const auto bar = layout_.bars.find(child);
        const bool is_rack = graph_.vertex(child).kind == VertexKind::network;
        const double top =
            is_rack && bar != layout_.bars.end() ? bar->second.bottom() : to.bottom();
        return svg_.line({{to.center(), top}, {to.center(), from.y}}, stroke);
    }
    if (has_bar || outer == VertexKind::package)
        return svg_.line({{to.center(), from.bottom()}, {to.center(), to.y}}, stroke);
    const double middle = from.bottom() + 12;
    svg_.line({{from.center(), from.bottom()},
               {from.center(), middle},
               {to.center(), middle},
               {to.center(), to.y}},
              stroke);
}

void Picture::draw_links() {
    for (const Link &link : graph_.links()) {
        if (!layout_.shows(link.from) || !layout_.shows(link.to) || link.from == link.to) continue;
        for (const auto &[outer, inner] :
             {std::pair(link.from, link.to), std::pair(link.to, link.from)}) {
            const VertexKind inner_kind = graph_.vertex(inner).kind;
            const bool is_c2c = link.link_class == LinkClass::nvlink;
            if (graph_.vertex(inner).parent == outer && !is_c2c) draw_tree_link(link, outer, inner);
            // Lines lead from NICs and GPUs down to the bars of networks and NVSwitches.
            const bool is_port = inner_kind == VertexKind::nic && layout_.bars.contains(outer) &&
                                 graph_.vertex(outer).kind == VertexKind::network;
            const bool is_switched =
                inner_kind == VertexKind::gpu && graph_.vertex(outer).kind == VertexKind::nvswitch;
            if (!is_port && !is_switched) continue;
            const Rect &from = layout_.rects.at(inner);
            const double end = is_port ? layout_.bars.at(outer).y : layout_.rects.at(outer).y;
            const Stroke stroke = stroke_of(link);
            svg_.line({{from.center(), from.bottom()}, {from.center(), end}}, stroke);
        }
    }
}

void Picture::draw_peer_links() {
    for (const Link &link : graph_.links()) {
        if (!layout_.shows(link.from) || !layout_.shows(link.to) ||
            graph_.vertex(link.from).kind != VertexKind::gpu ||
            graph_.vertex(link.to).kind != VertexKind::gpu)
            continue;
        const uint32_t machine = graph_.machine_of(link.from);
        const double top = layout_.arc_tops.at(machine);
        const double from = layout_.rects.at(link.from).center();
        const double to = layout_.rects.at(link.to).center();
        const double span = std::abs(from - to) / layout_.rects.at(machine).width;
        svg_.arc({from, top}, {to, top}, 12 + 98 * std::pow(std::min(span, 1.0), 0.7),
                 stroke_of(link, 0.75), false);
    }
}

std::string Picture::ranks_at(uint32_t vertex) const {
    std::string text;
    size_t shown = 0;
    for (size_t rank = 0; rank < places_.size(); rank++) {
        if (places_[rank] != vertex) continue;
        if (shown++ == 8) return text + "\u2026";
        text += (text.empty() ? "rank " : " ") + std::to_string(rank);
    }
    return text;
}

void Picture::draw_leaf(uint32_t vertex, const Rect &rect) {
    const Vertex &part = graph_.vertex(vertex);
    const bool is_gpu = part.kind == VertexKind::gpu;
    svg_.rectangle(rect, is_gpu ? "#d3f9d8" : "#c5f6fa", {is_gpu ? "#2b8a3e" : "#0b7285"});
    std::vector<std::string> lines = {part_label(part)};
    const std::string facts[] = {is_gpu ? part.arch : part.name, part.bus_id,
                                 is_gpu           ? ranks_at(vertex)
                                 : part.gpudirect ? "GPUDirect"
                                                  : std::string()};
    for (const std::string &fact : facts)
        if (!fact.empty()) lines.push_back(printable(fact));
    const double line_height = 13;
    double y = rect.y + (rect.height - line_height * static_cast<double>(lines.size())) / 2 + 10;
    for (size_t i = 0; i < lines.size(); i++, y += line_height)
        svg_.text({rect.center(), y}, lines[i], {.size = i == 0 ? 11.0 : 9.5, .is_bold = i == 0},
                  rect.width);
}

void Picture::draw_numa(uint32_t vertex, const Rect &rect) {
    const Vertex &part = graph_.vertex(vertex);
    svg_.rectangle(rect, "#e5dbff", {"#5f3dc4"});
    svg_.text({rect.center(), rect.y + 15}, part_label(part), {.size = 11, .is_bold = true});
    if (!part.cpus.is_empty())
        svg_.text({rect.center(), rect.y + 28},
                  std::to_string(part.cpus.size()) +
                      (part.cpus.size() == 1 ? " processor" : " processors"),
                  {.size = 9.5}, rect.width);
    svg_.text({rect.center(), rect.y + 40}, ranks_at(vertex), {.size = 9.5}, rect.width);
}

void Picture::draw_parts() {
    for (const auto &[vertex, rect] : layout_.rects) {
        const Vertex &part = graph_.vertex(vertex);
        if (part.kind == VertexKind::gpu || part.kind == VertexKind::nic) draw_leaf(vertex, rect);
        if (part.kind == VertexKind::numa) draw_numa(vertex, rect);
        if (part.kind == VertexKind::nvswitch) {
            svg_.rectangle(rect, "#e9fac8", {"#5c940d"}, 6);
            svg_.text({rect.x + 6, rect.y + 11}, part_label(part),
                      {.size = 9.5, .anchor = "start"});
        }
        if (part.kind != VertexKind::pci) continue;
        svg_.rectangle(rect, "#d0ebff", {"#1971c2"}, 9);
        svg_.text({rect.center(), rect.y + 12.5},
                  part.bus_id.empty() ? part_label(part) : part.bus_id, {.size = 9}, rect.width);
    }
    for (const auto &[vertex, bar] : layout_.bars) {
        const bool is_network = graph_.vertex(vertex).kind == VertexKind::network;
        svg_.rectangle(bar, is_network ? "#c3fae8" : "#b197fc",
                       {is_network ? "#087f5b" : "#5f3dc4"}, 3);
        if (is_network)
            svg_.text({bar.center(), bar.y + 15}, part_label(graph_.vertex(vertex)),
                      {.size = 11, .is_bold = true}, bar.width);
    }
}

void Picture::draw_legend() {
    const double row = 18, left = 24;
    double y = layout_.height + 8, wide = 560;
    if (!drawn_.empty())
        svg_.text({left, y}, "Links: class, GB/s each way, lanes or links side by side (x)",
                  {.size = 11, .anchor = "start", .is_bold = true});
    for (const auto &[link_class, negative_rate, width] : drawn_) {
        y += row;
        const Link link{0, 0, link_class, -negative_rate, 0, width};
        svg_.line({{left, y - 4}, {left + 46, y - 4}}, stroke_of(link));
        svg_.text({left + 56, y},
                  link_text(link) + (link.bytes_per_ns > 0 ? "" : " (rate unknown)"),
                  {.size = 11, .anchor = "start"});
    }
    y += row + 8;
    const std::vector<RingLabel> rings = ring_labels(order_);
    if (!rings.empty())
        svg_.text({left, y}, "Rings and the tree, dashed where no link leads from one to the next",
                  {.size = 11, .anchor = "start", .is_bold = true});
    for (const RingLabel &ring : rings) {
        y += row;
        if (!ring.color.empty()) svg_.line({{left, y - 4}, {left + 46, y - 4}}, {ring.color, 3});
        svg_.text({left + 56, y}, ring.text, {.size = 11, .anchor = "start"});
        wide = std::max(wide, left + 70 + static_cast<double>(ring.text.size()) * 6.7);
    }
    layout_.height = y + row;
    layout_.width = std::max(layout_.width, wide);
}

std::string Picture::draw() {
    draw_frames();
    draw_links();
    draw_rings(graph_, layout_, places_, order_, svg_);
    draw_peer_links();
    draw_parts();
    draw_legend();
    return svg_.finish(layout_.width, layout_.height);
}

} // namespace

std::string draw_picture(const Graph &graph, std::span<const uint32_t> places,
                         const RankOrder &order) {
    return Picture(graph, places, order).draw();
}

} // namespace qccl
