// Where the parts of a topology lie in its picture. Used by topology/picture_svg alone. Pure.
//
// A machine is a frame. From its top: its bus (the CPU interconnect), packages with their NUMA
// nodes, rows of PCI switches, a row of GPUs and NICs each in a column of its own, NVSwitches as
// bars, room for arcs that are links between GPUs, and a strip for each ring. Machines stand side
// by side above the bar of their network.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <span>

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
    // By machine, where the arcs between its GPUs begin, and the strip of the first ring.
    std::map<uint32_t, double> arc_tops, strip_tops;
    std::map<uint32_t, uint32_t> counts; // by machine or rack, how many alike it stands for
    double width = 0, height = 0;

    bool shows(uint32_t vertex) const { return rects.contains(vertex); }
};

// Machines and racks that are built alike are drawn once where the picture would be too wide
// otherwise. `places`: by rank, its vertex; above NUMA nodes with ranks there is room for arcs, and
// in machines whose GPUs have ranks there is a strip for each of so many rings and trees.
PictureLayout lay_out_picture(const Graph &graph, std::span<const uint32_t> places, size_t rings);

} // namespace qccl
