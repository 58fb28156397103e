// Formats SVG elements and escapes their texts.
#include "topology/svg_text.hpp"

#include "topology/part_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace qccl {

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

} // namespace qccl
