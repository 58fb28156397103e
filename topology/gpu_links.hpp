// Links between a machine's GPUs, in one form for all drivers, and the machine's graph with these
// links. The discovery of this machine uses it. Pure; any thread may call it.
#pragma once

#include "topology/graph.hpp"

#include <map>
#include <string>
#include <vector>

namespace qccl {

struct GpuLink {
    std::string from;    // bus id
    std::string to = {}; // bus id of the other GPU; empty: an NVSwitch
    LinkClass link_class = LinkClass::nvlink;
    double bytes_per_ns = 0; // each way, parallel links together; 0: unknown
    uint32_t width = 1;      // the number of parallel links

    bool operator==(const GpuLink &) const = default;
};

struct GpuDetails {
    std::map<std::string, std::string> arch; // by bus id: "sm90", "gfx942"
    // A link between two GPUs appears once, or twice if both ends report it.
    std::vector<GpuLink> links;
};

// Returns `machine` with what was found. If the ends of a link report different values, the smaller
// one counts. GPUs that are not in the graph, and links to them, are left out. What the graph
// already has stays: links between GPUs, and an architecture. All NVSwitches are one vertex, the
// last one.
Graph with_gpu_details(const Graph &machine, const GpuDetails &found);

} // namespace qccl
