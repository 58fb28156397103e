// Searches for the widest path first, then for the shortest one of that width.
#include "topology/path.hpp"

#include <algorithm>
#include <limits>
#include <queue>

namespace qccl {

namespace {

// Searches for paths between two vertices that lead only over vertices that may_pass() allows.
class Explorer {
public:
    Explorer(const Graph &graph, const Capacities &capacities, uint32_t from, uint32_t to)
        : graph_(graph), capacities_(capacities), from_(from), to_(to),
          stays_inside_(graph.machine_of(from) != no_vertex &&
                        graph.machine_of(from) == graph.machine_of(to)) {}

    // Returns the rate of the narrowest link on the best path; 0 if there is no path.
    double greatest_width() const;
    // Returns the shortest path over links that have at least `width` left.
    std::optional<std::vector<Hop>> shortest(double width) const;

private:
    bool may_pass(uint32_t vertex) const {
        if (vertex == from_ || vertex == to_) return true;
        const VertexKind kind = graph_.vertex(vertex).kind;
        if (kind == VertexKind::gpu) return false;
        return !stays_inside_ || (kind != VertexKind::network && kind != VertexKind::nic);
    }

    const Graph &graph_;
    const Capacities &capacities_;
    const uint32_t from_, to_;
    const bool stays_inside_;
};

double Explorer::greatest_width() const {
    std::vector<double> width(graph_.vertices().size());
    std::priority_queue<std::pair<double, uint32_t>> waiting;
    width[from_] = std::numeric_limits<double>::infinity();
    waiting.emplace(width[from_], from_);
    while (!waiting.empty()) {
        const auto [reached, vertex] = waiting.top();
        waiting.pop();
        if (vertex == to_) return reached;
        if (reached < width[vertex]) continue;
        for (const uint32_t number : graph_.links_of(vertex)) {
            const Link &link = graph_.link(number);
            const uint32_t next = link.other(vertex);
            const double left = std::min(reached, capacities_.left({number, link.from == vertex}));
            if (!may_pass(next) || left <= width[next]) continue;
            width[next] = left;
            waiting.emplace(left, next);
        }
    }
    return 0;
}

std::optional<std::vector<Hop>> Explorer::shortest(double width) const {
    std::vector<Hop> came_by(graph_.vertices().size(), {UINT32_MAX, true});
    std::vector<uint32_t> reached = {from_};
    for (size_t i = 0; i < reached.size() && reached[i] != to_; i++)
        for (const uint32_t number : graph_.links_of(reached[i])) {
            const Link &link = graph_.link(number);
            const bool is_forward = link.from == reached[i];
            const uint32_t next = link.other(reached[i]);
            if (next == from_ || came_by[next].link != UINT32_MAX || !may_pass(next)) continue;
            if (capacities_.left({number, is_forward}) < width) continue;
            came_by[next] = {number, is_forward};
            reached.push_back(next);
        }
    std::vector<Hop> hops;
    for (uint32_t vertex = to_; vertex != from_;) {
        const Hop hop = came_by[vertex];
        if (hop.link == UINT32_MAX) return std::nullopt;
        hops.push_back(hop);
        vertex = graph_.link(hop.link).other(vertex);
    }
    std::ranges::reverse(hops);
    return hops;
}

bool is_gpudirect(const Graph &graph, const Path &path, uint32_t from, uint32_t to) {
    if (path.count(graph, LinkClass::cpu_interconnect) != 0) return false;
    if (graph.vertex(from).kind != VertexKind::gpu && graph.vertex(to).kind != VertexKind::gpu)
        return false;
    return std::ranges::all_of(path.hops, [&](const Hop &hop) {
        const Link &link = graph.link(hop.link);
        for (const uint32_t end : {link.from, link.to})
            if (graph.vertex(end).kind == VertexKind::nic && !graph.vertex(end).gpudirect)
                return false;
        return true;
    });
}

LinkClass class_of(const Graph &graph, const Path &path, uint32_t from, uint32_t to) {
    for (const LinkClass between : {LinkClass::tcp, LinkClass::rdma})
        if (path.count(graph, between) != 0)
            return between == LinkClass::rdma && is_gpudirect(graph, path, from, to)
                       ? LinkClass::gpudirect_rdma
                       : between;
    for (const LinkClass inside : {LinkClass::cpu_interconnect, LinkClass::pcie, LinkClass::xgmi,
                                   LinkClass::nvlink, LinkClass::nvswitch})
        if (path.count(graph, inside) != 0) return inside;
    return LinkClass::shared_memory;
}

std::optional<std::vector<Hop>> own_memory(const Graph &graph, uint32_t vertex) {
    for (const uint32_t number : graph.links_of(vertex))
        if (graph.link(number).from == graph.link(number).to)
            return std::vector<Hop>{{number, true}};
    return std::vector<Hop>(); // a GPU's own memory is no link
}

} // namespace

Capacities::Capacities(const Graph &graph) {
    for (const Link &link : graph.links()) {
        const double rate =
            link.bytes_per_ns > 0 ? link.bytes_per_ns : row(link.link_class).typical_bytes_per_ns;
        left_.insert(left_.end(), 2, rate);
    }
}

void Capacities::take(const Hop &hop, double bytes_per_ns) {
    double &left = left_[index(hop)];
    left = std::max(0.0, left - bytes_per_ns);
}

uint32_t Path::count(const Graph &graph, LinkClass wanted) const {
    return static_cast<uint32_t>(std::ranges::count_if(
        hops, [&](const Hop &hop) { return graph.link(hop.link).link_class == wanted; }));
}

std::optional<Path> find_path(const Graph &graph, const Capacities &capacities, uint32_t from,
                              uint32_t to) {
    const Explorer explorer(graph, capacities, from, to);
    const double width = from == to ? 0 : explorer.greatest_width();
    if (from != to && width <= 0) return std::nullopt;
    auto hops = from == to ? own_memory(graph, from) : explorer.shortest(width);
    if (!hops) return std::nullopt;
    Path path{.hops = std::move(*hops)};
    path.bytes_per_ns = std::numeric_limits<double>::infinity();
    for (const Hop &hop : path.hops) {
        const Link &link = graph.link(hop.link);
        path.bytes_per_ns = std::min(path.bytes_per_ns, capacities.left(hop));
        path.latency_ns += link.latency_ns;
        if (is_between_machines(link.link_class) && link.bytes_per_ns <= 0)
            path.is_rate_known = false;
    }
    path.link_class = class_of(graph, path, from, to);
    return path;
}

} // namespace qccl
