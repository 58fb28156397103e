// The rings and the tree through the ranks, drawn over a picture. Used by topology/picture_svg
// alone. Pure.
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

// So many rings and trees.
size_t count_drawn(const RankOrder &order);

void draw_rings(const Graph &graph, const PictureLayout &layout, std::span<const uint32_t> places,
                const RankOrder &order, SvgText &svg);

// For the legend, that of the tree last. What has no colour is not drawn.
struct RingLabel {
    std::string color, text;
};
std::vector<RingLabel> ring_labels(const RankOrder &order);

} // namespace qccl
