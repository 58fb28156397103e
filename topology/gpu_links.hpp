// Links between a machine's GPUs as their drivers know them, in a form that all drivers have in
// common, and the machine's graph with them. Pure.
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
    double bytes_per_ns = 0; // each way, all that lie side by side together; 0: unknown
    uint32_t width = 1;      // how many these are

    bool operator==(const GpuLink &) const = default;
};

struct GpuDetails {
    std::map<std::string, std::string> arch; // by bus id: "sm90", "gfx942"
    // A link between two GPUs once or, seen from each end, twice.
    std::vector<GpuLink> links;
};

// Where the ends of a link say different things the less counts. GPUs that are not in the graph and
// links to them are left out, and what the graph knows already stays: links between GPUs and an
// architecture. NVSwitches are one vertex, the last one.
Graph with_gpu_details(const Graph &machine, const GpuDetails &found);

} // namespace qccl
