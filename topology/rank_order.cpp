// Searches each kind of machine once, exactly by dynamic programming for few vertices and by
// nearest neighbours for many, then joins the rings of the machines into rings of the job.
#include "topology/rank_order.hpp"

#include "coll/emitters.hpp"
#include "topology/graph.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

namespace qccl {

// ---- Rings of a machine

namespace {

constexpr size_t most_exact = 16, most_rings = 16;
constexpr double least_share = 0.5; // of the first ring's rate
constexpr uint64_t impossible = UINT64_MAX;

// The paths between all pairs of a few vertices, which have the numbers 0, 1, ... here.
class Pairs {
public:
    Pairs(const Graph &graph, const Capacities &capacities, std::span<const uint32_t> vertices);

    size_t size() const { return size_; }
    double width(size_t from, size_t to) const { return width_[from * size_ + to]; }
    // The cost of a hop beside its width: CPU interconnects before PCIe before links. One of a kind
    // costs more than all of the next kind that a ring can have. impossible: there is no path.
    uint64_t weight(size_t from, size_t to) const { return weight_[from * size_ + to]; }
    // Returns all widths that occur, the greatest first.
    std::vector<double> widths() const;

private:
    const size_t size_;
    std::vector<double> width_;
    std::vector<uint64_t> weight_;
};

uint64_t weight_of(const Graph &graph, const Path &path) {
    constexpr unsigned bits = 20;
    const uint64_t processors = path.count(graph, LinkClass::cpu_interconnect),
                   slots = path.count(graph, LinkClass::pcie);
    return (processors << bits | slots) << bits | path.hops.size();
}

Pairs::Pairs(const Graph &graph, const Capacities &capacities, std::span<const uint32_t> vertices)
    : size_(vertices.size()), width_(size_ * size_), weight_(size_ * size_, impossible) {
    for (size_t from = 0; from < size_; from++)
        for (size_t to = 0; to < size_; to++) {
            if (from == to) continue;
            const auto path = find_path(graph, capacities, vertices[from], vertices[to]);
            if (!path) continue;
            width_[from * size_ + to] = path->bytes_per_ns;
            weight_[from * size_ + to] = weight_of(graph, *path);
        }
}

std::vector<double> Pairs::widths() const {
    std::vector<double> all = width_;
    std::ranges::sort(all, std::greater());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    if (!all.empty() && all.back() <= 0) all.pop_back();
    return all;
}

// Finds the ring of least weight over hops of at least `width`, by dynamic programming over sets of
// vertices (Held and Karp, 1962). The ring begins with vertex 0; of equal rings, the one with the
// lowest numbers is taken. Empty if there is none.
class LightestRing {
public:
    LightestRing(const Pairs &pairs, double width)
        : pairs_(pairs), width_(width), rest_(sets() * pairs.size(), impossible) {}
    std::vector<uint32_t> find();

private:
    size_t sets() const { return size_t{1} << pairs_.size(); }
    // The weight from `last` to the end of the ring, after the ring has passed the set `passed`.
    uint64_t &rest(size_t passed, size_t last) { return rest_[passed * pairs_.size() + last]; }
    uint64_t hop(size_t from, size_t to) const {
        return pairs_.width(from, to) < width_ ? impossible : pairs_.weight(from, to);
    }
    // The same weight with `next` as the next vertex; impossible if `passed` has it already.
    uint64_t rest_by(size_t passed, size_t last, size_t next);
    size_t best_next(size_t passed, size_t last);

    const Pairs &pairs_;
    const double width_;
    std::vector<uint64_t> rest_;
};

uint64_t LightestRing::rest_by(size_t passed, size_t last, size_t next) {
    if ((passed >> next & 1) != 0) return impossible;
    const uint64_t step = hop(last, next), after = rest(passed | size_t{1} << next, next);
    return step == impossible || after == impossible ? impossible : step + after;
}

size_t LightestRing::best_next(size_t passed, size_t last) {
    size_t best = 0;
    uint64_t least = impossible;
    for (size_t next = 1; next < pairs_.size(); next++) {
        const uint64_t weight = rest_by(passed, last, next);
        if (weight >= least) continue;
        least = weight;
        best = next;
    }
    return best; // 0: there is none
}

std::vector<uint32_t> LightestRing::find() {
    const size_t all = sets() - 1;
    for (size_t last = 1; last < pairs_.size(); last++) rest(all, last) = hop(last, 0);
    for (size_t passed = all - 1; passed > 0; passed--)
        for (size_t last = 0; (passed & 1) != 0 && last < pairs_.size(); last++) {
            if ((passed >> last & 1) == 0) continue;
            if (const size_t next = best_next(passed, last); next != 0)
                rest(passed, last) = rest_by(passed, last, next);
        }
    if (rest(1, 0) == impossible) return {};
    std::vector<uint32_t> ring = {0};
    for (size_t passed = 1; passed != all; passed |= size_t{1} << ring.back())
        ring.push_back(static_cast<uint32_t>(best_next(passed, ring.back())));
    return ring;
}

std::vector<uint32_t> nearest_neighbours(const Pairs &pairs) {
    std::vector<uint32_t> ring = {0}, left(pairs.size() - 1);
    std::iota(left.begin(), left.end(), 1U);
    while (!left.empty()) {
        const auto nearest = std::ranges::min_element(left, {}, [&](uint32_t next) {
            return std::pair(-pairs.width(ring.back(), next), pairs.weight(ring.back(), next));
        });
        if (pairs.weight(ring.back(), *nearest) == impossible) return {};
        ring.push_back(*nearest);
        left.erase(nearest);
    }
    return ring;
}

std::vector<uint32_t> best_order(const Pairs &pairs) {
    if (pairs.size() > most_exact) return nearest_neighbours(pairs);
    for (const double width : pairs.widths()) {
        auto ring = LightestRing(pairs, width).find();
        if (!ring.empty()) return ring;
    }
    return {};
}

// Returns nothing if there is no path between neighbours.
LinkUses uses_of(const Graph &graph, const Capacities &capacities, std::span<const uint32_t> ring) {
    LinkUses uses;
    for (size_t i = 0; i < ring.size(); i++) {
        const auto path = find_path(graph, capacities, ring[i], ring[(i + 1) % ring.size()]);
        if (!path) return {};
        for (const Hop &hop : path->hops) uses[hop]++;
    }
    return uses;
}

double rate_of(const LinkUses &uses, const Capacities &capacities) {
    if (uses.empty()) return 0;
    double rate = std::numeric_limits<double>::infinity();
    for (const auto &[hop, times] : uses) rate = std::min(rate, capacities.left(hop) / times);
    return rate;
}

} // namespace

double ring_rate(const Graph &graph, const Capacities &capacities,
                 std::span<const uint32_t> vertices) {
    return rate_of(uses_of(graph, capacities, vertices), capacities);
}

std::vector<Ring> find_rings(const Graph &graph, std::span<const uint32_t> vertices) {
    if (vertices.size() < 2) return {{{vertices.begin(), vertices.end()}, 0}};
    std::vector<Ring> rings;
    Capacities capacities(graph);
    while (rings.size() < most_rings) {
        Ring ring;
        for (const uint32_t place : best_order(Pairs(graph, capacities, vertices)))
            ring.vertices.push_back(vertices[place]);
        if (ring.vertices.empty()) break;
        const LinkUses uses = uses_of(graph, capacities, ring.vertices);
        ring.bytes_per_ns = rate_of(uses, capacities);
        if (!rings.empty() && ring.bytes_per_ns < least_share * rings[0].bytes_per_ns) break;
        for (const auto &[hop, times] : uses) capacities.take(hop, times * ring.bytes_per_ns);
        rings.push_back(std::move(ring));
    }
    if (rings.empty()) rings.push_back({{vertices.begin(), vertices.end()}, 0});
    return rings;
}

// ---- Rings of a job

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
    struct SearchedPart {
        MachinePart part;
        std::vector<uint32_t> places;                 // numbers of the part
        std::vector<Ring> rings;                      // numbers of the part
        std::map<uint32_t, NearestNics> nearest_nics; // by place
    };
    const SearchedPart &known_for(const MachinePart &part, const std::vector<uint32_t> &places);

    const Graph &graph_;
    std::vector<SearchedPart> known_;
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

const MachineSearch::SearchedPart &MachineSearch::known_for(const MachinePart &part,
                                                            const std::vector<uint32_t> &places) {
    for (const SearchedPart &known : known_)
        if (known.places == places && known.part.graph == part.graph) return known;
    SearchedPart known{.part = part,
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
    const SearchedPart &known = known_for(part, local);
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
