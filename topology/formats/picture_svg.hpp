// Draws a topology as an SVG picture: machines, their packages, NUMA nodes, GPUs, NICs and
// switches; the links, with a color by class and a width by rate; a legend; and the rings and the
// tree through the ranks on top. qccl-info uses draw_picture() and count_drawn(). Pure; any thread
// may call the functions, which write to the given SvgText only. Only one thread at a time may use
// an SvgText.
#pragma once

#include "topology/formats/picture_layout.hpp"
#include "topology/graph.hpp"
#include "topology/rank_order.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

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
