// Writes the elements of an SVG picture as text. topology/picture_svg and topology/picture_rings
// use it. Only one thread at a time may use an SvgText.
#pragma once

#include "topology/picture_layout.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace qccl {

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

} // namespace qccl
