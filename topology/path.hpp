// The best path between two parts of a graph: the greatest rate at its narrowest link, then the
// fewest links. Used by the search for rings, by reports and to derive the planner's figures.
// Pure functions.
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

// How often links are used, each in one direction.
using LinkUses = std::map<Hop, uint32_t>;

// What is left of each link, separately for its two directions. A link whose rate is unknown
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
    double latency_ns = 0;   // the sum of what its links say
    // Whether each link between machines says its rate. Otherwise bytes_per_ns rests on a typical
    // figure, on which no prediction must rest.
    bool is_rate_known = true;

    uint32_t count(const Graph &graph, LinkClass link_class) const;
};

// Data pass through switches, processors and, between machines, NICs and networks, but through no
// third GPU; between two parts of one machine they stay inside it. A path from a NUMA node to
// itself is its memory. Equal paths: the one whose links have lower numbers. Empty where there is
// none, or where a direction on each has nothing left.
std::optional<Path> find_path(const Graph &graph, const Capacities &capacities, uint32_t from,
                              uint32_t to);

} // namespace qccl
