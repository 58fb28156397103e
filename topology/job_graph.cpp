// Copies the machines' graphs into the job's graph, looks up the places of ranks, and reduces the
// paths between the ranks to the planner's figures.
#include "topology/job_graph.hpp"

#include "topology/graph.hpp"
#include "topology/rank_order.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace qccl {

// ---- Graph of the job

namespace {

bool is_network(const Graph &graph, uint32_t vertex) {
    return graph.vertex(vertex).kind == VertexKind::network;
}

bool leads_to_a_network(const Graph &graph, uint32_t vertex) {
    return std::ranges::any_of(graph.links_of(vertex), [&](uint32_t link) {
        return is_network(graph, graph.link(link).other(vertex));
    });
}

bool has_several(std::span<const JobMachine> machines) {
    return std::ranges::any_of(
        machines, [&](const JobMachine &machine) { return machine.rack != machines.front().rack; });
}

} // namespace

JobGraph::JobGraph(std::span<const JobMachine> machines) {
    if (machines.size() == 1) {
        graph_ = named(*machines[0].graph, machines[0].name);
        return;
    }
    graph_.add({.kind = VertexKind::network});
    const bool has_racks = has_several(machines);
    for (const JobMachine &machine : machines)
        if (has_racks) network_of(machine);
    for (const JobMachine &machine : machines)
        add_machine(machine, has_racks ? network_of(machine) : 0);
}

// Returns the network of the machine's rack, and adds it if it is new.
uint32_t JobGraph::network_of(const JobMachine &machine) {
    const auto known = std::ranges::find(racks_, machine.rack);
    if (known != racks_.end()) return static_cast<uint32_t>(known - racks_.begin()) + 1;
    const auto number = static_cast<uint32_t>(racks_.size());
    racks_.push_back(machine.rack);
    const uint32_t rack = graph_.add(
        {.kind = VertexKind::network, .parent = 0, .name = machine.rack, .number = number});
    graph_.connect({0, rack, LinkClass::tcp});
    return rack;
}

void JobGraph::add_machine(const JobMachine &machine, uint32_t network) {
    const Graph &from = *machine.graph;
    std::vector<uint32_t> numbers(from.vertices().size(), no_vertex);
    const bool has_network = is_network(from, 0);
    for (uint32_t i = 0; i < numbers.size(); i++) {
        if (is_network(from, i)) {
            numbers[i] = network;
            continue;
        }
        Vertex vertex = from.vertex(i);
        if (has_network && vertex.kind == VertexKind::nic && !leads_to_a_network(from, i)) continue;
        vertex.parent = vertex.parent == no_vertex ? network : numbers[vertex.parent];
        if (vertex.kind == VertexKind::machine) {
            vertex.name = machine.name;
            vertex.number = static_cast<uint32_t>(numbers_.size());
        }
        numbers[i] = graph_.add(std::move(vertex));
    }
    for (Link link : from.links()) {
        link.from = numbers[link.from];
        link.to = numbers[link.to];
        if (link.from != no_vertex && link.to != no_vertex) graph_.connect(link);
    }
    if (!has_network) graph_.connect({numbers[0], network, LinkClass::tcp});
    numbers_.push_back(std::move(numbers));
}

uint32_t JobGraph::number_of(size_t machine, uint32_t vertex) const {
    if (numbers_.empty()) return vertex;
    const uint32_t number = numbers_[machine][vertex];
    if (number != no_vertex) return number;
    return *std::ranges::find_if(numbers_[machine], [&](uint32_t each) {
        return each != no_vertex && graph_.vertex(each).kind == VertexKind::machine;
    });
}

uint32_t place_of(const Graph &graph, const CpuSet &cpus, std::string_view bus_id) {
    for (const uint32_t gpu : graph.of_kind(VertexKind::gpu))
        if (!bus_id.empty() && graph.vertex(gpu).bus_id == bus_id) return gpu;
    uint32_t best = no_vertex;
    for (const uint32_t numa : graph.of_kind(VertexKind::numa)) {
        const CpuSet &near = graph.vertex(numa).cpus;
        if (cpus.is_empty() || !near.contains(cpus)) continue;
        if (best == no_vertex || near.size() < graph.vertex(best).cpus.size()) best = numa;
    }
    return best != no_vertex ? best : graph.of_kind(VertexKind::machine).front();
}

std::optional<uint32_t> numa_number(const Graph &graph, uint32_t place) {
    const uint32_t numa = graph.numa_of(place);
    if (numa == no_vertex) return std::nullopt;
    const uint32_t machine = graph.machine_of(numa);
    for (const uint32_t other : graph.of_kind(VertexKind::numa))
        if (other != numa && graph.machine_of(other) == machine) return graph.vertex(numa).number;
    return std::nullopt;
}

// ---- Figures for the planner

namespace {

// RDMA by the figures of ucx_perftest: memory moves without the processor, but a message has to be
// handed over and found. These figures have not been measured with QCCL. TCP has the defaults.
constexpr CostModel::LinkCosts rdma_link{{.latency_ns = 3000, .message_ns = 500, .byte_ns = 0.02},
                                         {.latency_ns = 2000, .message_ns = 1200, .byte_ns = 0.02}};

// What a machine can send and receive through the NICs that its ranks use.
struct MachineNics {
    LinkClass link_class = LinkClass::tcp;
    double nic_bytes_per_ns = -1; // of its fastest; 0: unknown; negative: the machine has none
    double latency_ns = 0;
    std::set<uint32_t> nics = {}; // as fast as that, and nearest to a rank

    // The sockets of all ranks share one NIC.
    double bytes_per_ns() const {
        const bool is_shared = link_class == LinkClass::tcp || nics.empty();
        return is_shared ? nic_bytes_per_ns : nic_bytes_per_ns * static_cast<double>(nics.size());
    }
};

double sustained(const Link &link) { return link.bytes_per_ns * row(link.link_class).efficiency; }

// UCX takes the fastest NICs, and over RDMA the one among them that is nearest to the rank.
std::map<uint32_t, MachineNics> lines_of(const JobTopology &job) {
    std::map<uint32_t, MachineNics> lines;
    for (const uint32_t place : job.places) lines[job.graph.machine_of(place)] = {};
    std::map<uint32_t, double> rates; // by NIC
    for (const Link &link : job.graph.links()) {
        if (!is_between_machines(link.link_class)) continue;
        for (const uint32_t end : {link.from, link.to}) {
            const auto line = lines.find(job.graph.machine_of(end));
            if (line == lines.end()) continue;
            rates[end] = sustained(link);
            if (sustained(link) > line->second.nic_bytes_per_ns)
                line->second = {link.link_class, sustained(link), link.latency_ns};
        }
    }
    for (const uint32_t nic : nearest_nics(job.graph, job.places)) {
        if (nic == no_vertex) continue;
        MachineNics &line = lines[job.graph.machine_of(nic)];
        const auto rate = rates.find(nic);
        if (rate != rates.end() && rate->second == line.nic_bytes_per_ns) line.nics.insert(nic);
    }
    return lines;
}

} // namespace

std::optional<RemoteLink> remote_link(const JobTopology &job) {
    const std::map<uint32_t, MachineNics> lines = lines_of(job);
    if (lines.size() < 2) return std::nullopt;
    RemoteLink slowest{LinkClass::gpudirect_rdma, std::nullopt, std::nullopt, 0};
    double rate = std::numeric_limits<double>::infinity(), nic_rate = rate;
    for (const auto &[machine, line] : lines) {
        slowest.link_class = std::max(slowest.link_class, line.link_class);
        rate = std::min(rate, line.bytes_per_ns());
        nic_rate = std::min(nic_rate, line.nic_bytes_per_ns);
        slowest.latency_ns = std::max(slowest.latency_ns, line.latency_ns);
    }
    constexpr double ends = 2;
    slowest.latency_ns *= ends;
    if (rate > 0) slowest.bytes_per_ns = rate;
    if (rate > nic_rate) slowest.rank_bytes_per_ns = nic_rate;
    return slowest;
}

void apply_link(const RemoteLink &link, const Settings &settings, CostModel &speeds) {
    const CostModel::LinkCosts known = speeds.remote;
    if (link.link_class != LinkClass::tcp) speeds.remote = rdma_link;
    speeds.remote.alone.latency_ns += link.latency_ns;
    speeds.remote.shared.latency_ns += link.latency_ns;
    if (settings.link_latency) {
        speeds.remote.alone.latency_ns = known.alone.latency_ns;
        speeds.remote.shared.latency_ns = known.shared.latency_ns;
    }
    if (!link.bytes_per_ns || settings.link_rate) return;
    speeds.remote_bytes_per_ns = *link.bytes_per_ns;
    speeds.remote_rank_bytes_per_ns = link.rank_bytes_per_ns.value_or(0);
    speeds.remote_rate_source = RateSource::stated;
}

std::optional<LocalLink> local_link(const JobTopology &job) {
    std::set<std::pair<uint32_t, uint32_t>> pairs;
    for (size_t rank = 1; rank < job.places.size(); rank++) {
        const uint32_t before = job.places[rank - 1], place = job.places[rank];
        if (job.graph.machine_of(before) == job.graph.machine_of(place))
            pairs.emplace(before, place);
    }
    if (pairs.empty()) return std::nullopt;
    const Capacities all(job.graph);
    std::optional<LocalLink> slowest;
    double least = std::numeric_limits<double>::infinity();
    bool are_known = true;
    for (const auto &[from, to] : pairs) {
        const auto path = find_path(job.graph, all, from, to);
        if (!path) continue;
        for (const Hop &hop : path->hops)
            are_known = are_known && job.graph.link(hop.link).bytes_per_ns > 0;
        const double rate = path->bytes_per_ns * row(path->link_class).efficiency;
        if (slowest && rate >= least) continue;
        slowest = {path->link_class, std::nullopt};
        least = rate;
    }
    if (slowest && are_known && std::isfinite(least)) slowest->bytes_per_ns = least;
    return slowest;
}

namespace {

// The classes of paths. Each path is looked for once.
class PathClasses {
public:
    explicit PathClasses(std::shared_ptr<const JobTopology> job)
        : job_(std::move(job)), all_(job_->graph) {}

    LinkClass between(uint32_t from, uint32_t to) {
        const Graph &graph = job_->graph;
        const uint32_t here = job_->places[from], there = job_->places[to];
        if (graph.machine_of(here) == graph.machine_of(there)) return path_class(here, there);
        return std::max(class_to_network(here), class_to_network(there));
    }

private:
    LinkClass class_to_network(uint32_t place) {
        const uint32_t network = job_->graph.vertex(job_->graph.machine_of(place)).parent;
        return network == no_vertex ? LinkClass::tcp : path_class(place, network);
    }

    LinkClass path_class(uint32_t from, uint32_t to) {
        const auto [known, is_new] = known_.try_emplace({from, to});
        if (!is_new) return known->second;
        const auto path = find_path(job_->graph, all_, from, to);
        return known->second = path ? path->link_class : LinkClass::tcp;
    }

    const std::shared_ptr<const JobTopology> job_;
    const Capacities all_;
    std::map<std::pair<uint32_t, uint32_t>, LinkClass> known_; // by places
};

} // namespace

LinkClassOf link_class_of(std::shared_ptr<const JobTopology> job) {
    const auto classes = std::make_shared<PathClasses>(std::move(job));
    return [classes](uint32_t from, uint32_t to) { return classes->between(from, to); };
}

bool are_on_gpus(const JobTopology &job) {
    return std::ranges::all_of(job.places, [&](uint32_t place) {
        return job.graph.vertex(place).kind == VertexKind::gpu;
    });
}

namespace {

// Returns the paths between these vertices of a machine, which have the numbers 0, 1, ... here.
LocalLinks::Kind ways_between(const Graph &graph, const std::vector<uint32_t> &parts) {
    LocalLinks::Kind kind{.parts = static_cast<uint32_t>(parts.size()), .byte_ns = {}, .ways = {}};
    for (const Link &link : graph.links())
        kind.byte_ns.insert(kind.byte_ns.end(), 2, link.bytes_per_ns > 0 ? 1 / sustained(link) : 0);
    const Capacities all(graph);
    for (const uint32_t from : parts)
        for (const uint32_t to : parts) {
            std::vector<uint32_t> &way = kind.ways.emplace_back();
            const auto path = from == to ? std::nullopt : find_path(graph, all, from, to);
            if (!path) continue;
            for (const Hop &hop : path->hops)
                way.push_back(2 * hop.link + (hop.is_forward ? 0 : 1));
        }
    return kind;
}

std::shared_ptr<const LocalLinks> local_links(const JobTopology &job) {
    if (!are_on_gpus(job)) return nullptr;
    LocalLinks found{.kinds = {},
                     .kind_of = std::vector<uint32_t>(job.places.size()),
                     .part_of = std::vector<uint32_t>(job.places.size())};
    std::map<uint32_t, std::vector<uint32_t>> ranks; // by machine
    for (uint32_t rank = 0; rank < job.places.size(); rank++)
        ranks[job.graph.machine_of(job.places[rank])].push_back(rank);
    using Built = std::pair<Graph, std::vector<uint32_t>>; // a machine, and where ranks are on it
    std::vector<Built> built;                              // by kind
    for (const auto &[machine, on_machine] : ranks) {
        const MachinePart part = machine_part(job.graph, machine);
        std::set<uint32_t> taken;
        for (const uint32_t rank : on_machine) taken.insert(part.number_of(job.places[rank]));
        const Built own(part.graph, {taken.begin(), taken.end()});
        const auto known = std::ranges::find(built, own) - built.begin();
        if (known == std::ssize(built)) {
            found.kinds.push_back(ways_between(own.first, own.second));
            built.push_back(own);
        }
        for (const uint32_t rank : on_machine) {
            found.kind_of[rank] = static_cast<uint32_t>(known);
            found.part_of[rank] = static_cast<uint32_t>(
                std::distance(taken.begin(), taken.find(part.number_of(job.places[rank]))));
        }
    }
    return std::make_shared<const LocalLinks>(std::move(found));
}

// Returns the network that contains this one. If a file has several networks that no other
// contains, returns an earlier one that this one is linked to; for the first network, the network
// itself.
uint32_t network_around(const Graph &graph, uint32_t network) {
    const uint32_t parent = graph.vertex(network).parent;
    if (parent != no_vertex) return parent;
    for (const uint32_t number : graph.links_of(network)) {
        const uint32_t other = graph.link(number).other(network);
        if (other < network && graph.vertex(other).kind == VertexKind::network) return other;
    }
    return graph.of_kind(VertexKind::network).front();
}

std::shared_ptr<const RackLines> rack_lines(const JobTopology &job) {
    RackLines lines;
    std::map<uint32_t, uint32_t> numbers; // by vertex
    for (const uint32_t vertex : job.graph.of_kind(VertexKind::network)) {
        const uint32_t around = network_around(job.graph, vertex);
        double rate = 0;
        for (const uint32_t number : job.graph.links_of(vertex))
            if (const Link &link = job.graph.link(number); link.other(vertex) == around)
                rate += sustained(link);
        numbers.emplace(vertex, static_cast<uint32_t>(numbers.size()));
        lines.parent.push_back(numbers.at(around));
        lines.byte_ns.push_back(rate > 0 ? 1 / rate : 0);
    }
    for (const uint32_t place : job.places) {
        const uint32_t network = job.graph.vertex(job.graph.machine_of(place)).parent;
        if (network == no_vertex) return nullptr; // there is one machine
        lines.rack_of.push_back(numbers.at(network));
    }
    const bool has_one = std::ranges::all_of(
        lines.rack_of, [&](uint32_t rack) { return rack == lines.rack_of.front(); });
    if (has_one) return nullptr;
    return std::make_shared<const RackLines>(std::move(lines));
}

} // namespace

SharedLinks shared_links(const JobTopology &job) {
    return {.local = local_links(job), .racks = rack_lines(job)};
}

std::vector<RankLocation> location(const JobTopology &job) {
    const Graph &graph = job.graph;
    std::map<uint32_t, uint32_t> numas; // by machine: how many
    for (const uint32_t numa : graph.of_kind(VertexKind::numa)) numas[graph.machine_of(numa)]++;
    std::map<uint32_t, uint32_t> hosts, racks;
    const auto number = [](std::map<uint32_t, uint32_t> &known, uint32_t vertex) {
        return known.emplace(vertex, static_cast<uint32_t>(known.size())).first->second;
    };
    std::vector<RankLocation> spots;
    for (const uint32_t place : job.places) {
        const uint32_t machine = graph.machine_of(place), numa = graph.numa_of(place);
        const bool has_node = numa != no_vertex && numas[machine] > 1;
        spots.push_back({.node = has_node ? 1 + graph.vertex(numa).number : 0,
                         .host = number(hosts, machine),
                         .rack = number(racks, graph.vertex(machine).parent)});
    }
    const bool is_one_place =
        std::ranges::all_of(spots, [&](const RankLocation &spot) { return spot == spots.front(); });
    return is_one_place ? std::vector<RankLocation>() : spots;
}

RingOrders rings_of(const JobTopology &job) { return rings_of_ranks(job.graph, job.places); }

} // namespace qccl
