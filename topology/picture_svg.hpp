// Draws a topology as an SVG picture: machines, their packages, NUMA nodes, GPUs, NICs and
// switches; the links, with a color by class and a width by rate; a legend; and the rings through
// the ranks on top. qccl-info uses it. Pure; any thread may call it.
#pragma once

#include "topology/graph.hpp"
#include "topology/rank_order.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace qccl {

// `places`: by rank, its vertex; `order`: the result of order_ranks() for them. If the picture
// would be too wide, machines and racks that are built alike are drawn once, with their number. If
// there are many rings, the first ones are drawn.
std::string draw_picture(const Graph &graph, std::span<const uint32_t> places,
                         const RankOrder &order);

} // namespace qccl
