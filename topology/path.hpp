// Finds the best path between two parts of a graph: the greatest rate at its narrowest link, then
// the fewest links. The search for rings, the reports and the planner's figures use it. Pure; any
// thread may call it.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace qccl {

struct Hop {
    uint32_t link = 0;
    bool is_forward = true; // from the link's `from` to its `to`

    auto operator<=>(const Hop &) const = default;
};

// How often each link is used in each direction.
using LinkUses = std::map<Hop, uint32_t>;

// The rate that is left of each link, for each direction by itself. A link whose rate is unknown
// starts with the typical rate of its class.
class Capacities {
public:
    explicit Capacities(const Graph &graph);

    double left(const Hop &hop) const { return left_[index(hop)]; }
    void take(const Hop &hop, double bytes_per_ns);

private:
    static size_t index(const Hop &hop) { return size_t{hop.link} * 2 + (hop.is_forward ? 0 : 1); }
    std::vector<double> left_;
};

struct Path {
    std::vector<Hop> hops;
    LinkClass link_class = LinkClass::shared_memory;
    double bytes_per_ns = 0; // of the narrowest link
    double latency_ns = 0;   // the sum of its links' latencies
    // Whether every link between machines has a known rate. Otherwise bytes_per_ns contains a
    // typical figure, and no prediction may be based on it.
    bool is_rate_known = true;

    uint32_t count(const Graph &graph, LinkClass link_class) const;
};

// A path passes through switches, processors and, between machines, NICs and networks, but through
// no third GPU. Between two parts of one machine it stays inside the machine. The path from a NUMA
// node to itself is the node's memory. Of equal paths, the one whose links have lower numbers is
// taken. Returns nothing if there is no path, or if each one has a link with nothing left in its
// direction.
std::optional<Path> find_path(const Graph &graph, const Capacities &capacities, uint32_t from,
                              uint32_t to);

} // namespace qccl
