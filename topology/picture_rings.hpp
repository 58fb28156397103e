// Draws the rings and the tree through the ranks over a picture. Only topology/picture_svg uses it.
// The functions write to the given SvgText only.
#pragma once

#include "topology/graph.hpp"
#include "topology/picture_layout.hpp"
#include "topology/rank_order.hpp"
#include "topology/svg_text.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qccl {

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

} // namespace qccl
