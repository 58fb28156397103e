// Stores sets of processors as words of 32 bits. Checks what every source's graph has to satisfy.
// The search for a path takes the widest first, then the shortest of that width.
#include "topology/graph.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <queue>
#include <set>
#include <utility>

namespace qccl {

// ---- Sets of processors

namespace {

constexpr uint32_t word_bits = 32;

} // namespace

void CpuSet::add(uint32_t cpu) {
    if (cpu >= most_cpus) return;
    const size_t word = cpu / word_bits;
    if (words_.size() <= word) words_.resize(word + 1);
    words_[word] |= uint32_t{1} << cpu % word_bits;
}

bool CpuSet::has(uint32_t cpu) const {
    const size_t word = cpu / word_bits;
    return word < words_.size() && (words_[word] >> cpu % word_bits & 1) != 0;
}

bool CpuSet::contains(const CpuSet &other) const {
    if (other.words_.size() > words_.size()) return false;
    for (size_t i = 0; i < other.words_.size(); i++)
        if ((other.words_[i] & ~words_[i]) != 0) return false;
    return true;
}

uint32_t CpuSet::size() const {
    uint32_t count = 0;
    for (const uint32_t word : words_) count += static_cast<uint32_t>(std::popcount(word));
    return count;
}

std::string CpuSet::print() const {
    std::string text;
    for (size_t i = words_.size(); i-- > 0;) {
        char word[16];
        std::snprintf(word, sizeof word, text.empty() ? "%x" : ",%08x", words_[i]);
        text += word;
    }
    return text.empty() ? "0" : text;
}

std::optional<CpuSet> CpuSet::parse(std::string_view mask) {
    std::vector<uint32_t> words; // highest first
    for (bool has_more = true; has_more;) {
        const size_t end = mask.find(',');
        has_more = end != std::string_view::npos;
        std::string_view word = mask.substr(0, end);
        if (has_more) mask.remove_prefix(end + 1);
        if (word.starts_with("0x")) word.remove_prefix(2);
        const bool is_omitted = word.empty() && !words.empty() && has_more; // 0, as hwloc prints it
        const auto value = parse_number<uint32_t>(word, 16);
        if (!value && !is_omitted) return std::nullopt;
        words.push_back(value.value_or(0));
        if (words.size() > most_cpus / word_bits) return std::nullopt;
    }
    CpuSet set;
    set.words_.assign(words.rbegin(), words.rend());
    while (!set.words_.empty() && set.words_.back() == 0) set.words_.pop_back();
    return set;
}

// ---- Parts and links

namespace {

constexpr std::array<std::string_view, vertex_kinds> kind_names = {
    "network", "machine", "package", "numa", "pci", "nvswitch", "gpu", "nic"};

bool may_contain(const Vertex &outer, const Vertex &inner) {
    switch (inner.kind) {
    case VertexKind::network:
    case VertexKind::machine: return outer.kind == VertexKind::network;
    case VertexKind::nvswitch: // it may belong to a rack, in systems with NVLink between machines
    case VertexKind::package:
    case VertexKind::numa:
    case VertexKind::pci:
    case VertexKind::gpu:
    case VertexKind::nic: break;
    }
    if (outer.kind == VertexKind::network) return inner.kind == VertexKind::nvswitch;
    return outer.kind != VertexKind::gpu && outer.kind != VertexKind::nic &&
           outer.kind != VertexKind::nvswitch;
}

Error refuse(std::string_view source, const std::string &sentence) {
    return invalid_argument("%.100s: %.380s", std::string(source).c_str(), sentence.c_str());
}

Done check_vertices(const Graph &graph, std::string_view source) {
    std::set<std::pair<uint32_t, std::string_view>> bus_ids; // each with its machine
    for (uint32_t i = 0; i < graph.vertices().size(); i++) {
        const Vertex &vertex = graph.vertex(i);
        if (vertex.parent != no_vertex && vertex.parent >= i)
            return refuse(source, describe(graph, i) + " lies in a part that stands after it");
        if (vertex.parent != no_vertex && !may_contain(graph.vertex(vertex.parent), vertex))
            return refuse(source,
                          describe(graph, i) + " cannot lie in " + describe(graph, vertex.parent));
        const bool is_outside =
            vertex.kind == VertexKind::machine || vertex.kind == VertexKind::network;
        if (vertex.parent == no_vertex && !is_outside)
            return refuse(source, describe(graph, i) + " lies in no machine");
        if (!vertex.bus_id.empty() && !bus_ids.insert({graph.machine_of(i), vertex.bus_id}).second)
            return refuse(source, "two parts of one machine have the bus id " + vertex.bus_id);
    }
    return {};
}

bool is_measure(double value) { return std::isfinite(value) && value >= 0; }

Done check_links(const Graph &graph, std::string_view source) {
    for (const Link &link : graph.links()) {
        const std::string ends = describe(graph, link.from) + " and " + describe(graph, link.to);
        if (link.from == link.to && graph.vertex(link.from).kind != VertexKind::numa)
            return refuse(source, describe(graph, link.from) + " has a link to itself");
        if (!is_measure(link.bytes_per_ns) || !is_measure(link.latency_ns))
            return refuse(source, "the link between " + ends +
                                      " has a rate or latency that is negative or no number");
    }
    return {};
}

} // namespace

std::string_view name(VertexKind kind) { return kind_names[static_cast<size_t>(kind)]; }

uint32_t Graph::add(Vertex vertex) {
    const auto number = static_cast<uint32_t>(vertices_.size());
    if (vertex.parent < number) children_[vertex.parent].push_back(number);
    vertices_.push_back(std::move(vertex));
    links_of_.emplace_back();
    children_.emplace_back();
    return number;
}

uint32_t Graph::add(const Graph &other, uint32_t parent) {
    const auto first = static_cast<uint32_t>(vertices_.size());
    for (Vertex vertex : other.vertices_) {
        vertex.parent = vertex.parent == no_vertex ? parent : vertex.parent + first;
        add(std::move(vertex));
    }
    for (Link link : other.links_) {
        link.from += first;
        link.to += first;
        connect(link);
    }
    return first;
}

void Graph::connect(const Link &link) {
    const auto number = static_cast<uint32_t>(links_.size());
    links_.push_back(link);
    links_of_[link.from].push_back(number);
    if (link.to != link.from) links_of_[link.to].push_back(number);
}

std::vector<uint32_t> Graph::of_kind(VertexKind kind) const {
    std::vector<uint32_t> found;
    for (uint32_t i = 0; i < vertices_.size(); i++)
        if (vertices_[i].kind == kind) found.push_back(i);
    return found;
}

uint32_t Graph::machine_of(uint32_t vertex) const {
    while (vertex != no_vertex && vertices_[vertex].kind != VertexKind::machine)
        vertex = vertices_[vertex].parent;
    return vertex;
}

uint32_t Graph::numa_of(uint32_t vertex) const {
    while (vertex != no_vertex && vertices_[vertex].kind != VertexKind::numa)
        vertex = vertices_[vertex].parent;
    return vertex;
}

bool Graph::is_connected() const {
    if (is_empty()) return false;
    std::vector<bool> is_reached(vertices_.size());
    std::vector<uint32_t> waiting = {0};
    is_reached[0] = true;
    size_t reached = 0;
    while (!waiting.empty()) {
        const uint32_t vertex = waiting.back();
        waiting.pop_back();
        reached++;
        for (const uint32_t number : links_of_[vertex]) {
            const uint32_t next = links_[number].other(vertex);
            if (is_reached[next]) continue;
            is_reached[next] = true;
            waiting.push_back(next);
        }
    }
    return reached == vertices_.size();
}

Done check(const Graph &graph, std::string_view source) {
    if (graph.of_kind(VertexKind::machine).empty())
        return refuse(source, "there is no machine in it");
    QCCL_TRY(check_vertices(graph, source));
    QCCL_TRY(check_links(graph, source));
    if (!graph.is_connected()) return refuse(source, "not all of its parts are connected by links");
    return {};
}

Graph named(const Graph &graph, std::string_view machine) {
    Graph copy;
    for (Vertex vertex : graph.vertices()) {
        if (vertex.kind == VertexKind::machine) vertex.name = machine;
        copy.add(std::move(vertex));
    }
    for (const Link &link : graph.links()) copy.connect(link);
    return copy;
}

std::string describe(const Graph &graph, uint32_t number) {
    const Vertex &vertex = graph.vertex(number);
    std::string text = std::string(name(vertex.kind)) + " " + std::to_string(vertex.number);
    if (!vertex.bus_id.empty()) return text + " (" + vertex.bus_id + ")";
    return vertex.name.empty() ? text : text + " (" + vertex.name + ")";
}

// ---- Best paths

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

// ---- One machine of a job

namespace {

void add_all(const Graph &graph, uint32_t original, uint32_t parent, MachinePart &part) {
    Vertex vertex = graph.vertex(original);
    vertex.parent = parent;
    if (parent == no_vertex) {
        vertex.name.clear();
        vertex.number = 0;
    }
    const uint32_t number = part.graph.add(std::move(vertex));
    part.originals.push_back(original);
    for (const uint32_t child : graph.children(original)) add_all(graph, child, number, part);
}

} // namespace

uint32_t MachinePart::number_of(uint32_t original) const {
    return static_cast<uint32_t>(std::ranges::find(originals, original) - originals.begin());
}

MachinePart machine_part(const Graph &graph, uint32_t machine) {
    MachinePart part;
    add_all(graph, machine, no_vertex, part);
    for (uint32_t i = 0; i < part.originals.size(); i++)
        for (const uint32_t number : graph.links_of(part.originals[i])) {
            Link link = graph.link(number);
            const uint32_t from = part.number_of(link.from), to = part.number_of(link.to);
            // Each link is taken once, at its `from` end.
            if (from >= part.originals.size() || to >= part.originals.size() || from != i) continue;
            link.from = from;
            link.to = to;
            part.graph.connect(link);
        }
    return part;
}

} // namespace qccl
