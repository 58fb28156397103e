// A picture of a topology as SVG: machines, their packages, NUMA nodes, GPUs, NICs and switches,
// the links coloured by class with a width by rate, a legend, and the rings through the ranks drawn
// over it. Used by qccl-info. Pure.
#pragma once

#include "topology/graph.hpp"
#include "topology/rank_order.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace qccl {

// `places`: by rank, its vertex; `order`: what order_ranks() makes of them. Of machines and racks
// that are built alike one is drawn, with their number, where the picture would be too wide; of
// many rings the first are drawn.
std::string draw_picture(const Graph &graph, std::span<const uint32_t> places,
                         const RankOrder &order);

} // namespace qccl
