// Formats SVG elements and escapes their texts. Draws the frames, the links, the rings and the
// parts over one another, then the legend. Each hop of the rings and of the tree is an arc, and
// each way to a network a line.
#include "topology/formats/picture_svg.hpp"

#include "topology/formats/topology_report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <set>
#include <tuple>

namespace qccl {

// ---- SVG elements

namespace {

// The width of a letter in proportion to its height, on average.
constexpr double letter_width = 0.6;

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value);
    return text;
}

std::string escaped(std::string_view text) {
    std::string safe;
    for (const char letter : printable(text)) {
        if (letter == '<')
            safe += "&lt;";
        else if (letter == '>')
            safe += "&gt;";
        else if (letter == '&')
            safe += "&amp;";
        else
            safe += letter;
    }
    return safe;
}

std::string attributes(const Stroke &stroke) {
    std::string text = " stroke=\"" + stroke.color + "\" stroke-width=\"" + number(stroke.width);
    text += "\"";
    if (stroke.opacity < 1) text.append(" stroke-opacity=\"" + number(stroke.opacity) + "\"");
    if (stroke.is_dashed) text += " stroke-dasharray=\"6 4\"";
    return text;
}

// Does not cut in the middle of a character of several bytes.
std::string cut(std::string_view text, size_t letters) {
    size_t end = std::min(letters, text.size());
    while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
        end--;
    return std::string(text.substr(0, end)) + "\u2026";
}

} // namespace

void SvgText::rectangle(const Rect &rect, const char *fill, const Stroke &border, double radius) {
    body_ += "<rect x=\"" + number(rect.x) + "\" y=\"" + number(rect.y) + "\" width=\"" +
             number(rect.width) + "\" height=\"" + number(rect.height) + "\" rx=\"" +
             number(radius) + "\" fill=\"" + fill + "\"" + attributes(border) + "/>\n";
}

void SvgText::text(Point start, std::string_view text, const TextStyle &style, double most_width) {
    const auto most = static_cast<size_t>(std::max(1.0, most_width / (style.size * letter_width)));
    const std::string shown = text.size() <= most ? std::string(text) : cut(text, most - 1);
    body_ += "<text x=\"" + number(start.x) + "\" y=\"" + number(start.y) + "\" font-size=\"" +
             number(style.size) + "\" text-anchor=\"" + style.anchor + "\" fill=\"" + style.color +
             (style.is_bold ? "\" font-weight=\"bold\">" : "\">") + escaped(shown) + "</text>\n";
}

void SvgText::line(const std::vector<Point> &points, const Stroke &stroke) {
    body_ += "<polyline points=\"";
    for (const Point &point : points) body_ += number(point.x) + "," + number(point.y) + " ";
    body_ += "\" fill=\"none\" stroke-linejoin=\"round\"" + attributes(stroke) + "/>\n";
}

void SvgText::arc(Point from, Point to, double depth, const Stroke &stroke, bool has_head) {
    const double control = from.y + depth * 4 / 3; // of a cubic curve, which reaches 3/4 of it
    body_ += "<path d=\"M" + number(from.x) + " " + number(from.y) + " C" + number(from.x) + " " +
             number(control) + " " + number(to.x) + " " + number(control) + " " + number(to.x) +
             " " + number(to.y) + "\" fill=\"none\"" + attributes(stroke) + "/>\n";
    if (!has_head) return;
    const double x = (from.x + to.x) / 2, y = from.y + depth;
    const double size = std::copysign(4 + stroke.width, to.x - from.x);
    body_ += "<polygon points=\"" + number(x + size) + "," + number(y) + " " + number(x - size) +
             "," + number(y - std::abs(size) * 0.8) + " " + number(x - size) + "," +
             number(y + std::abs(size) * 0.8) + "\" fill=\"" + stroke.color + "\"/>\n";
}

std::string SvgText::finish(double width, double height) const {
    return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
           "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" +
           number(width) + "\" height=\"" + number(height) + "\" viewBox=\"0 0 " + number(width) +
           " " + number(height) +
           "\" font-family=\"DejaVu Sans, Verdana, Arial, sans-serif\">\n"
           "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n" +
           body_ + "</svg>\n";
}

// ---- Rings and tree

namespace {

constexpr const char *colors[] = {"#e03131", "#1864ab", "#f08c00", "#862e9c", "#087f5b", "#c2255c",
                                  "#5c3c10", "#4c6ef5", "#66a80f", "#343a40", "#f06595", "#22b8cf"};
constexpr size_t most_rings = std::size(colors);
constexpr const char *tree_color = "#212529";

bool has_hops(const RankOrder &order) { return order.parents.size() > 1; }

size_t rings_drawn(const RankOrder &order) {
    return has_hops(order) ? std::min(order.rings.size(), most_rings) : 0;
}

// Whether a link connects the two parts, directly or through an NVSwitch.
bool is_linked(const Graph &graph, uint32_t a, uint32_t b) {
    const auto has_link = [&](uint32_t from, uint32_t to) {
        return std::ranges::any_of(graph.links_of(from), [&](uint32_t number) {
            return graph.link(number).other(from) == to;
        });
    };
    if (graph.vertex(b).kind != VertexKind::gpu) return false;
    return has_link(a, b) || std::ranges::any_of(graph.links_of(a), [&](uint32_t number) {
               const uint32_t middle = graph.link(number).other(a);
               return graph.vertex(middle).kind == VertexKind::nvswitch && has_link(b, middle);
           });
}

// Draws one ring, or the tree: below GPUs and NICs in a strip of its own, above NUMA nodes next to
// the other rings.
class RingPainter {
public:
    RingPainter(const Graph &graph, const PictureLayout &layout, size_t ring, size_t rings,
                const char *color, SvgText &svg)
        : graph_(graph), layout_(layout), ring_(static_cast<double>(ring)),
          shift_((ring_ - static_cast<double>(rings - 1) / 2) *
                 std::min(4.0, 36.0 / static_cast<double>(rings))),
          color_(color), stroke_{color, 2}, svg_(svg) {}

    void draw_hop(uint32_t from, uint32_t to) const;
    // Draws the way to the network (`leaves`) or from the network.
    void draw_port(uint32_t place, uint32_t nic, bool leaves) const;

private:
    double height_in(uint32_t machine) const {
        return layout_.strip_tops.at(machine) + ring_ * strip_height + 4;
    }

    const Graph &graph_;
    const PictureLayout &layout_;
    const double ring_;
    const double shift_; // keeps rings through one part side by side
    const char *const color_;
    const Stroke stroke_;
    SvgText &svg_;
};

void RingPainter::draw_hop(uint32_t from, uint32_t to) const {
    const Rect &a = layout_.rects.at(from), &b = layout_.rects.at(to);
    const uint32_t machine = graph_.machine_of(from);
    const double span = std::abs(a.center() - b.center()) / layout_.rects.at(machine).width;
    const double depth = 8 + (strip_height - 18) * std::pow(span, 0.7);
    Stroke stroke = stroke_;
    stroke.is_dashed = !is_linked(graph_, from, to);
    if (graph_.vertex(from).kind == VertexKind::numa)
        return svg_.arc({a.center() + shift_, a.y}, {b.center() + shift_, b.y},
                        -depth - 24 - shift_, stroke, true);
    const double y = height_in(machine);
    for (const Rect *const end : {&a, &b})
        svg_.rectangle({end->center() - 2.5, y - 2.5, 5, 5}, color_, {color_, 1}, 2.5);
    svg_.arc({a.center(), y}, {b.center(), y}, depth, stroke, true);
}

void RingPainter::draw_port(uint32_t place, uint32_t nic, bool leaves) const {
    if (nic == no_vertex || !layout_.shows(nic)) return;
    const Rect &rect = layout_.rects.at(nic);
    double top = rect.bottom(), x = rect.center() + shift_;
    if (graph_.vertex(place).kind == VertexKind::gpu) {
        draw_hop(leaves ? place : nic, leaves ? nic : place);
        top = height_in(graph_.machine_of(place));
        svg_.line({{rect.center(), top}, {x, top}}, stroke_);
    }
    for (const uint32_t number : graph_.links_of(nic)) {
        const uint32_t network = graph_.link(number).other(nic);
        const auto bar = layout_.bars.find(network);
        if (bar != layout_.bars.end() && graph_.vertex(network).kind == VertexKind::network)
            svg_.line({{x, top}, {x, bar->second.y}}, stroke_);
    }
}

} // namespace

size_t count_drawn(const RankOrder &order) { return has_hops(order) ? rings_drawn(order) + 1 : 0; }

void draw_rings(const Graph &graph, const PictureLayout &layout, std::span<const uint32_t> places,
                const RankOrder &order, SvgText &svg) {
    const size_t drawn = count_drawn(order), rings = rings_drawn(order);
    if (drawn == 0) return;
    // One line leads from each GPU down to its points in the strips.
    for (const uint32_t place : places) {
        if (!layout.shows(place) || graph.vertex(place).kind != VertexKind::gpu) continue;
        const Rect &rect = layout.rects.at(place);
        const double end = layout.strip_tops.at(graph.machine_of(place)) +
                           static_cast<double>(drawn - 1) * strip_height + 4;
        svg.line({{rect.center(), rect.bottom()}, {rect.center(), end}}, {"#ced4da", 1});
    }
    const auto draw = [&](const RingPainter &painter, uint32_t from, uint32_t to) {
        const uint32_t a = places[from], b = places[to];
        const bool stays = graph.machine_of(a) == graph.machine_of(b);
        const bool has_both = layout.shows(a) && layout.shows(b);
        const bool has_arc = graph.vertex(a).kind == graph.vertex(b).kind &&
                             graph.vertex(a).kind != VertexKind::machine;
        if (stays && a != b && has_both && has_arc) painter.draw_hop(a, b);
        if (stays) return;
        if (layout.shows(a)) painter.draw_port(a, order.nics[from], true);
        if (layout.shows(b)) painter.draw_port(b, order.nics[to], false);
    };
    for (size_t ring = 0; ring < rings; ring++) {
        const RingPainter painter(graph, layout, ring, drawn, colors[ring], svg);
        const std::vector<uint32_t> &ranks = order.rings[ring].ranks;
        for (size_t i = 0; i < ranks.size(); i++)
            draw(painter, ranks[i], ranks[(i + 1) % ranks.size()]);
    }
    const RingPainter painter(graph, layout, rings, drawn, tree_color, svg);
    for (uint32_t rank = 1; rank < order.parents.size(); rank++)
        draw(painter, rank, order.parents[rank]);
}

// Returns "tree, from rank 1 to 0, 2 to 0, 3 to 2".
static std::string tree_text(std::span<const uint32_t> parents) {
    constexpr size_t most_ranks = 24;
    std::string text = "tree";
    for (size_t rank = 1; rank < std::min(parents.size(), most_ranks); rank++)
        text.append(rank == 1 ? ", from rank " : ", ")
            .append(std::to_string(rank))
            .append(" to ")
            .append(std::to_string(parents[rank]));
    if (parents.size() > most_ranks)
        text += " and " + std::to_string(parents.size() - most_ranks) + " more";
    return text;
}

std::vector<RingLabel> ring_labels(const RankOrder &order) {
    std::vector<RingLabel> labels;
    const size_t drawn = rings_drawn(order);
    for (size_t i = 0; i < drawn; i++) {
        const RankRing &ring = order.rings[i];
        std::string text = "ring " + std::to_string(i) + ", ";
        text += ring.is_rate_known ? rate_number(ring.bytes_per_ns) + " GB/s" : "rate unknown";
        text += ", ranks";
        static constexpr size_t most_ranks = 32;
        for (size_t j = 0; j < std::min(ring.ranks.size(), most_ranks); j++)
            (text += ' ') += std::to_string(ring.ranks[j]);
        if (ring.ranks.size() > most_ranks)
            text += " and " + std::to_string(ring.ranks.size() - most_ranks) + " more";
        labels.push_back({colors[i], std::move(text)});
    }
    if (drawn != 0 && drawn < order.rings.size())
        labels.push_back({{}, std::to_string(order.rings.size() - drawn) + " more rings"});
    if (has_hops(order)) labels.push_back({tree_color, tree_text(order.parents)});
    return labels;
}

// ---- The whole picture

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
