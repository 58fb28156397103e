// A machine is a frame. It has from the top: its bus (the CPU interconnect), packages with their
// NUMA nodes, rows of PCI switches, a row of GPUs and NICs with a column each, NVSwitches as bars,
// space for arcs that are links between GPUs, and a strip for each ring. Machines stand side by
// side above the bar of their network.
//
// lay_out_picture() computes where the parts of a topology lie; the rest draws them as an SVG
// picture: machines, their packages, NUMA nodes, GPUs, NICs and switches; the links, with a color
// by class and a width by rate; a legend; and the rings and the tree through the ranks on top.
// qccl-info uses draw_picture() and count_drawn(). Pure; any thread may call the functions, which
// write to the given SvgText only. Only one thread at a time may use an SvgText.
#pragma once

#include "topology/graph.hpp"
#include "topology/rank_order.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

struct Rect {
    double x = 0, y = 0, width = 0, height = 0;

    double center() const { return x + width / 2; }
    double right() const { return x + width; }
    double bottom() const { return y + height; }
};

inline constexpr double strip_height = 52;

struct PictureLayout {
    std::map<uint32_t, Rect> rects; // of the vertices that are shown
    std::map<uint32_t, Rect> bars;  // of networks, and of machines whose bus is shown
    // By machine: where the arcs between its GPUs begin, and where the strip of the first ring
    // begins.
    std::map<uint32_t, double> arc_tops, strip_tops;
    std::map<uint32_t, uint32_t> counts; // by machine or rack: how many alike it stands for
    double width = 0, height = 0;

    bool shows(uint32_t vertex) const { return rects.contains(vertex); }
};

// Draws machines and racks that are built alike once if the picture would be too wide otherwise.
// `places`: by rank, its vertex. Leaves space for arcs above NUMA nodes with ranks. Machines whose
// GPUs have ranks get `rings` strips, one for each ring and tree.
PictureLayout lay_out_picture(const Graph &graph, std::span<const uint32_t> places, size_t rings);

// ---- SVG elements

struct Point {
    double x = 0, y = 0;
};

struct Stroke {
    std::string color;
    double width = 1;
    double opacity = 1;
    bool is_dashed = false;
};

struct TextStyle {
    double size = 10;
    const char *anchor = "middle"; // or "start", "end"
    bool is_bold = false;
    const char *color = "#212529";
};

class SvgText {
public:
    void rectangle(const Rect &rect, const char *fill, const Stroke &border, double radius = 4);
    // Cuts the text off with an ellipsis if it is wider than `most_width`.
    void text(Point start, std::string_view text, const TextStyle &style, double most_width = 1e9);
    void line(const std::vector<Point> &points, const Stroke &stroke);
    // Draws an arc from `from` to `to`, which have one height. The middle is `depth` below them, or
    // above if negative. With `has_head` an arrow head at the middle points to `to`.
    void arc(Point from, Point to, double depth, const Stroke &stroke, bool has_head);

    // Returns the whole document.
    std::string finish(double width, double height) const;

private:
    std::string body_;
};

// ---- Rings and tree

// Returns the number of rings and trees that draw_rings() draws.
size_t count_drawn(const RankOrder &order);

void draw_rings(const Graph &graph, const PictureLayout &layout, std::span<const uint32_t> places,
                const RankOrder &order, SvgText &svg);

// Entries for the legend, the tree's last. An entry without a color stands for rings that are not
// drawn.
struct RingLabel {
    std::string color, text;
};
std::vector<RingLabel> ring_labels(const RankOrder &order);

// ---- The whole picture

// `places`: by rank, its vertex; `order`: the result of order_ranks() for them. If the picture
// would be too wide, machines and racks that are built alike are drawn once, with their number. If
// there are many rings, the first ones are drawn.
std::string draw_picture(const Graph &graph, std::span<const uint32_t> places,
                         const RankOrder &order);

} // namespace qccl
