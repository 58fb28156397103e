// Searches each kind of machine once, then joins the rings of the machines into rings of the job.
#include "topology/rank_order.hpp"

#include "coll/tree.hpp"
#include "topology/machine_part.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

namespace qccl {

namespace {

// The ranks of one machine.
struct Machine {
    uint32_t vertex = no_vertex;
    std::vector<uint32_t> ranks;  // ascending
    std::vector<uint32_t> places; // the distinct vertices of its ranks, ascending
    std::vector<uint32_t> nics;   // that its ranks use, ascending
    double nic_bytes_per_ns = std::numeric_limits<double>::infinity(); // from a rank to its NIC
    std::vector<Ring> rings;                                           // through its places
};

// Returns the networks from the outermost to the innermost, so that machines of one rack sort
// together.
std::vector<uint32_t> networks_around(const Graph &graph, uint32_t machine) {
    std::vector<uint32_t> networks;
    for (uint32_t at = graph.vertex(machine).parent; at != no_vertex; at = graph.vertex(at).parent)
        networks.insert(networks.begin(), at);
    return networks;
}

// Sorts the networks by their first rank, and the machines within a network by theirs.
void sort_by_network(const Graph &graph, std::vector<Machine> &machines) {
    std::map<uint32_t, uint32_t> first_rank; // by network
    for (const Machine &machine : machines)
        for (const uint32_t network : networks_around(graph, machine.vertex)) {
            const auto [entry, is_new] = first_rank.try_emplace(network, machine.ranks[0]);
            entry->second = std::min(entry->second, machine.ranks[0]);
        }
    const auto key = [&](const Machine &machine) {
        std::vector<uint32_t> ranks;
        for (const uint32_t network : networks_around(graph, machine.vertex))
            ranks.push_back(first_rank[network]);
        ranks.push_back(machine.ranks[0]);
        return ranks;
    };
    std::ranges::sort(machines, {}, key);
}

std::vector<Machine> group_by_machine(const Graph &graph, std::span<const uint32_t> places) {
    std::map<uint32_t, Machine> by_vertex;
    for (uint32_t rank = 0; rank < places.size(); rank++) {
        const uint32_t vertex = graph.machine_of(places[rank]);
        Machine &machine = by_vertex[vertex];
        machine.vertex = vertex;
        machine.ranks.push_back(rank);
        machine.places.push_back(places[rank]);
    }
    std::vector<Machine> machines;
    for (auto &[vertex, machine] : by_vertex) {
        std::ranges::sort(machine.places);
        machine.places.erase(std::unique(machine.places.begin(), machine.places.end()),
                             machine.places.end());
        machines.push_back(std::move(machine));
    }
    sort_by_network(graph, machines);
    return machines;
}

struct NearestNics {
    std::vector<uint32_t> nics; // all that are equally near
    double bytes_per_ns = 0;    // on the path to each
};

// Keeps what was found on a machine for other machines that are built alike.
class MachineSearch {
public:
    explicit MachineSearch(const Graph &graph) : graph_(graph) {}

    // Fills in nics and rings of `machine`, and the NIC of each of its ranks in `nics`.
    void search(Machine &machine, std::span<const uint32_t> places, std::span<uint32_t> nics);

private:
    struct Known {
        MachinePart part;
        std::vector<uint32_t> places;                 // numbers of the part
        std::vector<Ring> rings;                      // numbers of the part
        std::map<uint32_t, NearestNics> nearest_nics; // by place
    };
    const Known &known_for(const MachinePart &part, const std::vector<uint32_t> &places);

    const Graph &graph_;
    std::vector<Known> known_;
};

NearestNics nics_nearest_to(const Graph &part, uint32_t place) {
    using Distance = std::tuple<double, uint32_t, size_t>; // less is nearer
    const Capacities capacities(part);
    Distance least;
    NearestNics nearest;
    for (const uint32_t nic : part.of_kind(VertexKind::nic)) {
        const auto path = find_path(part, capacities, place, nic);
        if (!path) continue;
        const Distance distance = {
            -path->bytes_per_ns, path->count(part, LinkClass::cpu_interconnect), path->hops.size()};
        if (!nearest.nics.empty() && distance > least) continue;
        if (nearest.nics.empty() || distance < least) nearest = {{}, path->bytes_per_ns};
        least = distance;
        nearest.nics.push_back(nic);
    }
    return nearest;
}

const MachineSearch::Known &MachineSearch::known_for(const MachinePart &part,
                                                     const std::vector<uint32_t> &places) {
    for (const Known &known : known_)
        if (known.places == places && known.part.graph == part.graph) return known;
    Known known{.part = part,
                .places = places,
                .rings = find_rings(part.graph, places),
                .nearest_nics = {}};
    for (const uint32_t place : places)
        known.nearest_nics[place] = nics_nearest_to(part.graph, place);
    known_.push_back(std::move(known));
    return known_.back();
}

void MachineSearch::search(Machine &machine, std::span<const uint32_t> places,
                           std::span<uint32_t> nics) {
    const MachinePart part = machine_part(graph_, machine.vertex);
    std::vector<uint32_t> local;
    for (const uint32_t place : machine.places) local.push_back(part.number_of(place));
    const Known &known = known_for(part, local);
    for (Ring ring : known.rings) {
        for (uint32_t &vertex : ring.vertices) vertex = part.originals[vertex];
        machine.rings.push_back(std::move(ring));
    }
    std::map<uint32_t, uint32_t> users; // number of ranks by NIC
    for (const uint32_t rank : machine.ranks) {
        const NearestNics &nearest = known.nearest_nics.at(part.number_of(places[rank]));
        if (nearest.nics.empty()) continue;
        const uint32_t nic = *std::ranges::min_element(
            nearest.nics, {}, [&](uint32_t each) { return std::pair(users[each], each); });
        users[nic]++;
        machine.nic_bytes_per_ns = std::min(machine.nic_bytes_per_ns, nearest.bytes_per_ns);
        nics[rank] = part.originals[nic];
    }
    for (const auto &[nic, ranks] : users) machine.nics.push_back(part.originals[nic]);
}

// Returns the ranks of a machine in the order in which its ring passes them.
std::vector<uint32_t> ranks_along(const Machine &machine, const Ring &ring,
                                  std::span<const uint32_t> places) {
    std::vector<uint32_t> ranks;
    for (const uint32_t vertex : ring.vertices)
        for (const uint32_t rank : machine.ranks)
            if (places[rank] == vertex) ranks.push_back(rank);
    return ranks;
}

// Rotates the ranks so that the last one, which sends to the next machine, uses this NIC.
void leave_by(std::vector<uint32_t> &ranks, uint32_t nic, std::span<const uint32_t> nics) {
    const auto last = std::ranges::find(ranks.rbegin(), ranks.rend(), nic,
                                        [&](uint32_t rank) { return nics[rank]; });
    if (last != ranks.rend()) std::rotate(ranks.begin(), last.base(), ranks.end());
}

struct SearchedMachines {
    std::vector<Machine> machines;
    std::vector<uint32_t> nics; // by rank
};

SearchedMachines searched(const Graph &graph, std::span<const uint32_t> places) {
    SearchedMachines all{group_by_machine(graph, places),
                         std::vector<uint32_t>(places.size(), no_vertex)};
    MachineSearch search(graph);
    for (Machine &machine : all.machines) search.search(machine, places, all.nics);
    return all;
}

// With several machines there is a ring for each NIC that all of them have.
size_t count_rings(const std::vector<Machine> &machines) {
    size_t rings = machines.empty() ? 1 : SIZE_MAX;
    for (const Machine &machine : machines)
        rings = std::min(rings, machines.size() > 1 ? machine.nics.size() : machine.rings.size());
    return std::max<size_t>(1, rings);
}

// Returns the ring through all machines; rank 0 begins.
RankRing ring_between(const SearchedMachines &all, size_t number,
                      std::span<const uint32_t> places) {
    RankRing ring;
    for (const Machine &machine : all.machines) {
        auto ranks = ranks_along(machine, machine.rings[number % machine.rings.size()], places);
        if (!machine.nics.empty())
            leave_by(ranks, machine.nics[number % machine.nics.size()], all.nics);
        ring.ranks.insert(ring.ranks.end(), ranks.begin(), ranks.end());
    }
    std::rotate(ring.ranks.begin(), std::ranges::find(ring.ranks, 0U), ring.ranks.end());
    return ring;
}

// Returns the path from a NIC up to the outermost network.
std::vector<Hop> way_up(const Graph &graph, uint32_t nic) {
    std::vector<Hop> hops;
    for (uint32_t at = nic, next = no_vertex; at != no_vertex; at = next) {
        next = no_vertex;
        for (const uint32_t number : graph.links_of(at)) {
            const Link &link = graph.link(number);
            const uint32_t end = link.other(at);
            const bool is_up = at == nic ? graph.vertex(end).kind == VertexKind::network
                                         : end == graph.vertex(at).parent;
            if (!is_up || next != no_vertex) continue;
            hops.push_back({number, link.from == at});
            next = end;
        }
    }
    return hops;
}

// Returns the path from the last rank of a machine to the first rank of the next.
std::vector<Hop> way_across(const Graph &graph, uint32_t from_nic, uint32_t to_nic) {
    if (from_nic == no_vertex || to_nic == no_vertex) return {};
    std::vector<Hop> up = way_up(graph, from_nic), down = way_up(graph, to_nic);
    while (!up.empty() && !down.empty() && up.back().link == down.back().link) {
        up.pop_back();
        down.pop_back();
    }
    for (const Hop &hop : down) up.push_back({hop.link, !hop.is_forward});
    return up;
}

// Calls `visit` with the path from each machine to the next on the ring.
template <class Visitor>
void each_crossing(const Graph &graph, const RankRing &ring, std::span<const uint32_t> places,
                   std::span<const uint32_t> nics, const Visitor &visit) {
    for (size_t i = 0; i < ring.ranks.size(); i++) {
        const uint32_t from = ring.ranks[i], to = ring.ranks[(i + 1) % ring.ranks.size()];
        if (graph.machine_of(places[from]) != graph.machine_of(places[to]))
            visit(way_across(graph, nics[from], nics[to]));
    }
}

// Inside a machine a ring has the rate that the search has found, between machines its share of the
// links.
void rate_rings(const Graph &graph, const std::vector<Machine> &machines,
                std::span<const uint32_t> places, RankOrder &order) {
    const Capacities capacities(graph);
    LinkUses uses; // of links between machines, by all rings
    for (const RankRing &ring : order.rings)
        each_crossing(graph, ring, places, order.nics, [&](const std::vector<Hop> &way) {
            for (const Hop &hop : way) uses[hop]++;
        });
    for (size_t i = 0; i < order.rings.size(); i++) {
        RankRing &ring = order.rings[i];
        double rate = std::numeric_limits<double>::infinity();
        for (const Machine &machine : machines) {
            if (machine.places.size() > 1)
                rate = std::min(rate, machine.rings[i % machine.rings.size()].bytes_per_ns);
            if (machines.size() > 1) rate = std::min(rate, machine.nic_bytes_per_ns);
        }
        each_crossing(graph, ring, places, order.nics, [&](const std::vector<Hop> &way) {
            for (const Hop &hop : way) {
                ring.is_rate_known = ring.is_rate_known && graph.link(hop.link).bytes_per_ns > 0;
                rate = std::min(rate, capacities.left(hop) / uses[hop]);
            }
            ring.is_rate_known = ring.is_rate_known && !way.empty();
        });
        ring.bytes_per_ns = std::isfinite(rate) ? rate : 0;
    }
}

} // namespace

std::vector<uint32_t> nearest_nics(const Graph &graph, std::span<const uint32_t> places) {
    return searched(graph, places).nics;
}

std::vector<std::vector<uint32_t>> rings_of_ranks(const Graph &graph,
                                                  std::span<const uint32_t> places) {
    const SearchedMachines all = searched(graph, places);
    std::vector<std::vector<uint32_t>> rings;
    for (size_t i = 0; i < count_rings(all.machines); i++)
        rings.push_back(ring_between(all, i, places).ranks);
    return rings;
}

RankOrder order_ranks(const Graph &graph, std::span<const uint32_t> places) {
    SearchedMachines all = searched(graph, places);
    const std::vector<Machine> &machines = all.machines;
    RankOrder order;
    for (size_t i = 0; i < count_rings(machines); i++)
        order.rings.push_back(ring_between(all, i, places));
    order.nics = std::move(all.nics);
    rate_rings(graph, machines, places, order);
    const RankTopology by_ring(std::vector<RankLocation>(places.size()),
                               {order.rings.front().ranks});
    order.parents =
        tree_parents({.size = static_cast<uint32_t>(places.size()), .places = &by_ring}, {}, 0);
    return order;
}

} // namespace qccl
