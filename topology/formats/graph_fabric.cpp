// Finds the paths of a job's ranks once, and makes each message's route from them.
#include "topology/formats/read_topology.hpp"

#include "topology/graph.hpp"
#include "topology/rank_order.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace qccl {

namespace {

using Hops = std::vector<Hop>; // by the job's link numbers

// One machine with the network that contains it: paths are found on few vertices, however many
// machines the job has.
class MachineGraph {
public:
    MachineGraph(const Graph &job, uint32_t machine, std::span<const uint32_t> parts) {
        const uint32_t network = job.vertex(machine).parent;
        if (network != no_vertex) add(job, network, no_vertex);
        for (const uint32_t part : parts) {
            const auto parent = numbers_.find(job.vertex(part).parent);
            add(job, part, parent == numbers_.end() ? no_vertex : parent->second);
        }
        for (const uint32_t part : parts)
            for (const uint32_t number : job.links_of(part)) connect(job, number);
    }

    // `from` and `to` are vertices of the job's graph.
    std::optional<Hops> path(uint32_t from, uint32_t to) const {
        const auto begin = numbers_.find(from), end = numbers_.find(to);
        if (begin == numbers_.end() || end == numbers_.end()) return std::nullopt;
        auto found = find_path(graph_, Capacities(graph_), begin->second, end->second);
        if (!found) return std::nullopt;
        for (Hop &hop : found->hops) hop.link = links_[hop.link];
        return std::move(found->hops);
    }

private:
    void add(const Graph &job, uint32_t number, uint32_t parent) {
        Vertex vertex = job.vertex(number);
        vertex.parent = parent;
        numbers_[number] = graph_.add(std::move(vertex));
    }

    void connect(const Graph &job, uint32_t number) {
        Link link = job.link(number);
        const auto from = numbers_.find(link.from), to = numbers_.find(link.to);
        if (from == numbers_.end() || to == numbers_.end()) return;
        if (std::ranges::find(links_, number) != links_.end()) return; // added at its other end
        link.from = from->second;
        link.to = to->second;
        graph_.connect(link);
        links_.push_back(number);
    }

    Graph graph_;
    std::map<uint32_t, uint32_t> numbers_; // by the job's vertex
    std::vector<uint32_t> links_;          // by link: the job's number
};

class GraphFabric final : public Fabric {
public:
    GraphFabric(const JobTopology &job, const TieredRates &rates) : rates_(rates) {
        std::map<uint32_t, uint32_t> machines;
        for (const uint32_t place : job.places) {
            const uint32_t machine = job.graph.machine_of(place);
            const auto at = machines.emplace(machine, static_cast<uint32_t>(machines.size())).first;
            machine_of_.push_back(at->second);
        }
        ranks_of_machine_.assign(machines.size(), 0);
        for (const uint32_t machine : machine_of_) ranks_of_machine_[machine]++;
        for (const auto &[vertex, number] : machines) machine_vertices_[number] = vertex;
    }

    Done find_paths(const JobTopology &job, bool says_line_rate) {
        number_links(job.graph, says_line_rate);
        std::map<uint32_t, std::vector<uint32_t>> parts; // by machine
        for (uint32_t vertex = 0; vertex < job.graph.vertices().size(); vertex++)
            if (const uint32_t machine = job.graph.machine_of(vertex); machine != no_vertex)
                parts[machine].push_back(vertex);
        std::map<uint32_t, std::vector<Seat>> seats; // by machine: seats, each once
        const std::vector<uint32_t> nics = nearest_nics(job.graph, job.places);
        for (uint32_t rank = 0; rank < job.places.size(); rank++) {
            const Seat seat{job.places[rank], nics[rank]};
            std::vector<Seat> &known = seats[job.graph.machine_of(seat.place)];
            if (std::ranges::find(known, seat) == known.end()) known.push_back(seat);
        }
        for (const auto &[machine, own] : seats)
            QCCL_TRY(find_paths_of(job.graph, machine, parts[machine], own, seats.size() > 1));
        for (uint32_t rank = 0; rank < job.places.size(); rank++)
            place_of_.push_back(place_numbers_.at({job.places[rank], nics[rank]}));
        return find_network_paths(job.graph, seats.size() > 1);
    }

    uint32_t ranks() const override { return static_cast<uint32_t>(place_of_.size()); }
    uint32_t links() const override { return static_cast<uint32_t>(capacities_.size()); }
    double bytes_per_ns(uint32_t link) const override { return capacities_[link]; }
    double burst_bytes(uint32_t link) const override {
        return is_line_[link] ? rates_.line_burst_bytes : 0;
    }
    std::string link_name(uint32_t link) const override { return names_[link]; }

    MessageRoute route(uint32_t from, uint32_t to, bool is_eager) const override {
        const uint32_t here = place_of_[from], there = place_of_[to];
        if (machine_of_[from] == machine_of_[to]) {
            MessageRoute route = local_message(rates_, sharers(from), is_eager, has_networks_);
            const auto path = local_.find({here, there});
            if (path == local_.end()) return route;
            pass(route, path->second);
            // The time of the bytes is that of the links.
            if (route.count != 0) route.send.byte_ns = route.recv.byte_ns = 0;
            return route;
        }
        MessageRoute route = remote_message(rates_, sharers(from), sharers(to));
        const FabricPlace &first = places_[here], &last = places_[there];
        pass(route, first.up);
        if (first.network != last.network) pass(route, between_.at({first.network, last.network}));
        pass(route, last.down);
        return route;
    }

    uint32_t core_groups() const override {
        return static_cast<uint32_t>(ranks_of_machine_.size());
    }
    uint32_t core_group(uint32_t rank) const override { return machine_of_[rank]; }
    double cores(uint32_t group) const override {
        return cores_of(group) * (has_networks_ ? 1 : rates_.busy_core);
    }
    std::string cores_name(uint32_t group) const override {
        return machine_names_[group] + "'s cores";
    }

private:
    // A path in the simulator's terms: directed links that have a rate.
    struct Way {
        std::vector<uint32_t> links;
        double latency_ns = 0;
    };
    // Where a rank is: a vertex, and the NIC that the rank uses, if there is one.
    struct Seat {
        uint32_t place = no_vertex, nic = no_vertex;
        auto operator<=>(const Seat &) const = default;
    };
    // The paths from a seat to its machine's network and back.
    struct FabricPlace {
        uint32_t network = no_vertex;
        Way up, down;
    };

    double cores_of(uint32_t group) const {
        return rates_.cores > 0 ? rates_.cores : ranks_of_machine_[group];
    }
    double sharers(uint32_t rank) const {
        const uint32_t machine = machine_of_[rank];
        return std::max(1.0, ranks_of_machine_[machine] / cores_of(machine));
    }

    // If a path has more links than a route has room for, the fastest ones are left out, because
    // they matter least.
    void pass(MessageRoute &route, const Way &way) const {
        route.latency_ns += way.latency_ns;
        for (const uint32_t link : way.links) {
            const auto known = route.links();
            if (std::ranges::find(known, link) != known.end()) continue;
            if (route.count < MessageRoute::most_links) {
                route.add(link);
                continue;
            }
            uint32_t *const fastest = std::max_element(
                route.numbers.begin(), route.numbers.end(),
                [this](uint32_t a, uint32_t b) { return capacities_[a] < capacities_[b]; });
            if (capacities_[link] < capacities_[*fastest]) *fastest = link;
        }
    }

    void number_links(const Graph &graph, bool says_line_rate) {
        for (const Link &link : graph.links()) {
            numbers_.push_back(links());
            const bool is_of_machine =
                graph.machine_of(link.from) != no_vertex || graph.machine_of(link.to) != no_vertex;
            const bool is_line = is_between_machines(link.link_class) && is_of_machine;
            double rate = link.bytes_per_ns * row(link.link_class).efficiency;
            if (is_line && (rate <= 0 || says_line_rate)) rate = rates_.line_rate;
            if (!is_of_machine && rates_.rack_rate > 0) rate = rates_.rack_rate;
            if (link.link_class == LinkClass::shared_memory) rate = 0;
            if (rate <= 0) continue;
            for (const auto &[from, to] : {std::pair(link.from, link.to), {link.to, link.from}}) {
                capacities_.push_back(rate);
                is_line_.push_back(is_line);
                names_.push_back(describe(graph, from) + " to " + describe(graph, to));
            }
        }
        numbers_.push_back(links());
        for (uint32_t machine = 0; machine < ranks_of_machine_.size(); machine++)
            machine_names_.push_back(describe(graph, machine_vertices_[machine]));
    }

    Way way_of(const Graph &graph, const Hops &hops) const {
        Way way;
        for (const Hop &hop : hops) {
            way.latency_ns += graph.link(hop.link).latency_ns;
            if (numbers_[hop.link] != numbers_[hop.link + 1])
                way.links.push_back(numbers_[hop.link] + (hop.is_forward ? 0 : 1));
        }
        return way;
    }

    static Hops reversed(Hops hops) {
        std::ranges::reverse(hops);
        for (Hop &hop : hops) hop.is_forward = !hop.is_forward;
        return hops;
    }

    static Error no_path(const Graph &graph, uint32_t from, uint32_t to) {
        return invalid_argument("the topology has no path from %.80s to %.80s",
                                describe(graph, from).c_str(), describe(graph, to).c_str());
    }

    Done find_paths_of(const Graph &graph, uint32_t machine, std::span<const uint32_t> parts,
                       std::span<const Seat> own, bool has_networks) {
        const MachineGraph alone(graph, machine, parts);
        const auto first = static_cast<uint32_t>(places_.size());
        for (const Seat &seat : own) {
            place_numbers_[seat] = static_cast<uint32_t>(places_.size());
            FabricPlace &added = places_.emplace_back();
            if (!has_networks) continue;
            added.network = graph.vertex(machine).parent;
            auto up = alone.path(seat.place, seat.nic == no_vertex ? added.network : seat.nic);
            const std::optional<Hops> out =
                seat.nic == no_vertex ? Hops() : alone.path(seat.nic, added.network);
            if (!up || !out) return no_path(graph, seat.place, added.network);
            up->insert(up->end(), out->begin(), out->end());
            added.up = way_of(graph, *up);
            added.down = way_of(graph, reversed(*up));
        }
        for (uint32_t a = 0; a < own.size(); a++)
            for (uint32_t b = 0; b < own.size(); b++) {
                if (own[a].place == own[b].place) continue; // nothing but memory is between them
                const auto path = alone.path(own[a].place, own[b].place);
                if (!path) return no_path(graph, own[a].place, own[b].place);
                local_[{first + a, first + b}] = way_of(graph, *path);
            }
        return {};
    }

    Done find_network_paths(const Graph &graph, bool has_networks) {
        has_networks_ = has_networks;
        std::vector<uint32_t> networks;
        for (const FabricPlace &place : places_)
            if (std::ranges::find(networks, place.network) == networks.end())
                networks.push_back(place.network);
        const Capacities all(graph);
        for (const uint32_t from : networks)
            for (const uint32_t to : networks) {
                if (from == to) continue;
                const auto path = find_path(graph, all, from, to);
                if (!path) return no_path(graph, from, to);
                between_[{from, to}] = way_of(graph, path->hops);
            }
        return {};
    }

    const TieredRates rates_;
    bool has_networks_ = false;
    std::vector<uint32_t> machine_of_, place_of_; // by rank
    std::vector<uint32_t> ranks_of_machine_;
    std::map<uint32_t, uint32_t> machine_vertices_;
    std::vector<std::string> machine_names_;
    std::map<Seat, uint32_t> place_numbers_;
    std::vector<FabricPlace> places_;
    std::map<std::pair<uint32_t, uint32_t>, Way> local_;   // by places
    std::map<std::pair<uint32_t, uint32_t>, Way> between_; // by networks
    std::vector<uint32_t> numbers_; // by link of the graph: its first directed link; then the end
    std::vector<double> capacities_;
    std::vector<bool> is_line_;
    std::vector<std::string> names_;
};

} // namespace

Result<std::unique_ptr<Fabric>> make_graph_fabric(const JobTopology &job, const TieredRates &rates,
                                                  bool says_line_rate) {
    auto fabric = std::make_unique<GraphFabric>(job, rates);
    QCCL_TRY(fabric->find_paths(job, says_line_rate));
    return std::unique_ptr<Fabric>(std::move(fabric));
}

} // namespace qccl
