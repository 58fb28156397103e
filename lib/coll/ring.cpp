#include "coll/ring.hpp"

#include <algorithm>

namespace qccl {

namespace {

// One sum is on its way to the next rank while the following one is being made. With one slot, two
// ranks would each wait for the other to read what it needs the room of.
uint32_t sums_in_flight(const Team &t) { return t.size == 1 ? 0 : 2; }

std::vector<uint32_t> order_of(const Team &t) {
    if (t.places) return {t.places->ring().begin(), t.places->ring().end()};
    return ranks_in_turn(t.size);
}

// Every chunk goes once round, and all but its owner add their part to what comes.
void collect(Schedule &s, const Group &g, Parts &parts) {
    for (uint32_t i = 1; i < g.size(); i++) {
        for (const uint32_t c : g.chunks[g.before(i)]) s.send(g.ranks[g.after(1)], parts[c]);
        for (const uint32_t c : g.chunks[g.before(i + 1)]) {
            const Slot came = wire(s.wires);
            s.recv(g.ranks[g.before(1)], came, c);
            s.reduce(sum(c), came);
            if (parts[c].is(SlotKind::input)) s.reduce(sum(c), parts[c]);
            parts[c] = sum(c);
        }
    }
}

// Every chunk goes once round and stays everywhere.
void deliver(Schedule &s, const Group &g) {
    for (uint32_t i = 1; i < g.size(); i++) {
        for (const uint32_t c : g.chunks[g.before(i - 1)]) s.send(g.ranks[g.after(1)], output(c));
        for (const uint32_t c : g.chunks[g.before(i)]) s.recv(g.ranks[g.before(1)], output(c));
    }
}

SumOrder::Term fold(std::vector<SumOrder::Term> members, uint32_t owner) {
    std::rotate(members.begin(), members.begin() + (owner + 1) % members.size(), members.end());
    return {.operands = std::move(members)};
}

// Hop i passes on the sum of the i members after the owner.
double encoded(std::span<const uint32_t> weights, uint32_t owner) {
    double total = 0, passed = 0;
    for (size_t i = 1; i < weights.size(); i++) {
        passed += weights[(owner + i) % weights.size()];
        total += passed;
    }
    return total;
}

} // namespace

const Phases ring_phases{collect, deliver, fold, encoded, [](uint32_t size) { return size - 1; }};

// Chunk c starts at position c and ends before it.
Schedule all_reduce_ring(const Team &t) {
    Group group(order_of(t), t.rank);
    for (uint32_t c = 0; c < t.size; c++) group.chunks[(c + t.size - 1) % t.size].push_back(c);
    return all_reduce_by(ring_phases, group, sums_in_flight(t));
}

// The chunk that ends here has to be this rank's.
Schedule reduce_scatter_ring(const Team &t) {
    return reduce_scatter_by(ring_phases, each_with_its_own(order_of(t), t.rank),
                             sums_in_flight(t));
}

Schedule all_gather_ring(const Team &t) {
    return all_gather_by(ring_phases, each_with_its_own(order_of(t), t.rank));
}

// A chain from the root on: segments follow one another down the chain.
Schedule broadcast_ring(const Team &t) {
    Schedule s{.chunks = 1, .outbox = std::min(t.size - 1, 1U)};
    Group group(order_of(t), t.rank);
    group.chunks[group.position(t.root)].push_back(0);
    if (t.rank == t.root) s.copy(output(0), input(0));
    deliver(s, group);
    return s;
}

SumOrder order_ring(Collective collective, const Team &t, uint32_t chunk) {
    const std::vector<uint32_t> order = order_of(t);
    uint32_t first = chunk % t.size;
    if (collective == Collective::reduce_scatter)
        while (order[(first + t.size - 1) % t.size] != chunk % t.size) first = (first + 1) % t.size;
    return SumOrder::in_turn(order, first);
}

uint32_t rounds_ring(Collective collective, uint32_t P) {
    return collective == Collective::all_reduce ? 2 * (P - 1) : P - 1;
}

uint32_t outer_rounds_ring(Collective collective, const Team &t) {
    if (!t.places) return 0;
    const std::vector<uint32_t> order = order_of(t);
    const Partition &hosts = t.places->hosts();
    uint64_t crossings = 0;
    for (uint32_t at = 0; at < t.size; at++)
        if (hosts.group_of(order[at]) != hosts.group_of(order[(at + 1) % t.size])) crossings++;
    const uint64_t all = rounds_ring(collective, t.size) * crossings;
    return static_cast<uint32_t>((all + t.size - 1) / t.size);
}

// Hop i encodes the sum of i ranks, and the last one the result. That earlier hops' losses are
// encoded too is left out: a formula for Gaussian losses is wrong where they matter most.
double noise_ring(Collective collective, uint32_t P) {
    if (P == 1) return 0;
    if (collective == Collective::all_reduce) return (P + 1) / 2.0;
    return collective == Collective::reduce_scatter ? (P - 1) / 2.0 : 1;
}

} // namespace qccl
