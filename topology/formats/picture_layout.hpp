// Computes where the parts of a topology lie in its picture. Only topology/formats/picture_svg uses
// it. Pure; any thread may call it.
//
// A machine is a frame. It has from the top: its bus (the CPU interconnect), packages with their
// NUMA nodes, rows of PCI switches, a row of GPUs and NICs with a column each, NVSwitches as bars,
// space for arcs that are links between GPUs, and a strip for each ring. Machines stand side by
// side above the bar of their network.
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

} // namespace qccl
