// Draws each hop of the rings and of the tree as an arc, and the ways to the networks as lines.
#include "topology/picture_rings.hpp"

#include "topology/part_text.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace qccl {

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

} // namespace qccl
