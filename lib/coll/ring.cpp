// Ring: every chunk travels from neighbour to neighbour, with the fewest bytes and the most rounds.
// Neighbours are those of the team's topology, so that a ring enters and leaves each host once. If
// the topology has several rings, which use different links, the chunks may be spread over all of
// them.

#include "coll/emitters.hpp"

#include <algorithm>

namespace qccl {

namespace {

std::vector<uint32_t> order_of(const Team &t, uint32_t ring) {
    if (!t.places) return ranks_in_turn(t.size);
    const auto order = t.places->ring(ring);
    return {order.begin(), order.end()};
}

uint32_t rings_used(const Team &t, const Choices &choices) {
    return t.places && choices[0] == 1 ? t.places->rings() : 1;
}

// Returns the rings, without any chunks.
std::vector<Group> rings_of(const Team &t, const Choices &choices) {
    std::vector<Group> rings;
    for (uint32_t k = 0; k < rings_used(t, choices); k++)
        rings.emplace_back(order_of(t, k), t.rank);
    return rings;
}

// Returns the rings with their chunks: chunk c ends at rank c.
std::vector<Group> rings_to_owners(const Team &t, const Choices &choices) {
    std::vector<Group> rings = rings_of(t, choices);
    for (uint32_t k = 0; k < rings.size(); k++)
        for (uint32_t at = 0; at < t.size; at++)
            if (const uint32_t c = rings[k].ranks[at]; c % rings.size() == k)
                rings[k].chunks[at].push_back(c);
    return rings;
}

// In each ring one sum is on its way to the next rank while this rank makes the following one. With
// one slot, two ranks would each wait for the other to read the value whose slot they need.
uint32_t sums_in_flight(const std::vector<Group> &rings) {
    return rings[0].size() == 1 ? 0 : 2 * static_cast<uint32_t>(rings.size());
}

// Every chunk goes once round, and all ranks but its owner add their part to the received sum. A
// rank sends in all rings before it waits for one.
void ring_reduce_scatter(Schedule &s, std::span<const Group> rings, Parts &parts) {
    for (uint32_t i = 1; i < rings[0].size(); i++) {
        for (const Group &g : rings)
            for (const uint32_t c : g.chunks[g.before(i)]) s.send(g.ranks[g.after(1)], parts[c]);
        for (const Group &g : rings)
            for (const uint32_t c : g.chunks[g.before(i + 1)]) {
                const Slot came = wire(s.wires);
                s.recv(g.ranks[g.before(1)], came, c);
                s.reduce(sum(c), came);
                if (parts[c].is(SlotKind::input)) s.reduce(sum(c), parts[c]);
                parts[c] = sum(c);
            }
    }
}
void ring_reduce_scatter(Schedule &s, const Group &g, Parts &parts) {
    ring_reduce_scatter(s, {&g, 1}, parts);
}

// Every chunk goes once round, and every rank keeps it.
void ring_all_gather(Schedule &s, std::span<const Group> rings) {
    for (uint32_t i = 1; i < rings[0].size(); i++) {
        for (const Group &g : rings)
            for (const uint32_t c : g.chunks[g.before(i - 1)])
                s.send(g.ranks[g.after(1)], output(c));
        for (const Group &g : rings)
            for (const uint32_t c : g.chunks[g.before(i)]) s.recv(g.ranks[g.before(1)], output(c));
    }
}
void ring_all_gather(Schedule &s, const Group &g) { ring_all_gather(s, {&g, 1}); }

Schedule reduce_scatter_schedule(const std::vector<Group> &rings, uint32_t chunks) {
    Schedule s{.chunks = chunks, .outbox = sums_in_flight(rings)};
    Parts parts = inputs(s);
    ring_reduce_scatter(s, rings, parts);
    for (const Group &g : rings)
        for (const uint32_t c : g.own_chunks()) s.finish(output(c), parts[c]);
    return s;
}

// Returns the rings with the chunks of a whole vector: chunk c starts at position c / R of ring
// c mod R and ends before it.
std::vector<Group> rings_of_sums(const Team &t, const Choices &choices) {
    std::vector<Group> rings = rings_of(t, choices);
    const auto R = static_cast<uint32_t>(rings.size());
    for (uint32_t c = 0; c < R * t.size; c++)
        rings[c % R].chunks[(c / R + t.size - 1) % t.size].push_back(c);
    return rings;
}

uint32_t chunks_in(const std::vector<Group> &rings) {
    return static_cast<uint32_t>(rings.size()) * rings[0].size();
}

SumOrder::Term ring_fold(std::vector<SumOrder::Term> members, uint32_t owner) {
    std::rotate(members.begin(), members.begin() + (owner + 1) % members.size(), members.end());
    return {.operands = std::move(members)};
}

// Hop i passes on the sum of the i members after the owner.
NoiseMoments ring_encoded(std::span<const uint32_t> weights, uint32_t owner) {
    NoiseMoments total;
    double passed = 0;
    for (size_t i = 1; i < weights.size(); i++) {
        passed += weights[(owner + i) % weights.size()];
        total += NoiseMoments::of(passed);
    }
    return total;
}

} // namespace

const GroupPhases ring_phases{ring_reduce_scatter, ring_all_gather, ring_fold, ring_encoded,
                              [](uint32_t size) { return size - 1; }};

Schedule all_reduce_ring(const Team &t, const Choices &choices) {
    const std::vector<Group> rings = rings_of_sums(t, choices);
    Schedule s = reduce_scatter_schedule(rings, chunks_in(rings));
    ring_all_gather(s, rings);
    return s;
}

Schedule reduce_scatter_ring(const Team &t, const Choices &choices) {
    return reduce_scatter_schedule(rings_to_owners(t, choices), t.size);
}

// A rank encodes only one chunk, its own.
Schedule all_gather_ring(const Team &t, const Choices &choices) {
    const std::vector<Group> rings = rings_to_owners(t, choices);
    Schedule s{.chunks = t.size, .outbox = std::min(t.size - 1, 1U)};
    s.copy(output(t.rank), input(t.rank));
    ring_all_gather(s, rings);
    return s;
}

Schedule reduce_ring(const Team &t, const Choices &choices) {
    const std::vector<Group> rings = rings_of_sums(t, choices);
    Schedule s{.chunks = chunks_in(rings), .outbox = sums_in_flight(rings)};
    Parts parts = inputs(s);
    ring_reduce_scatter(s, rings, parts);
    for (const Group &g : rings) gather_sums(s, g, t.root, parts);
    return s;
}

// A chain that starts at the root in each ring: segments follow one another down the chain.
Schedule broadcast_ring(const Team &t, const Choices &choices) {
    std::vector<Group> rings = rings_of(t, choices);
    const auto R = static_cast<uint32_t>(rings.size());
    Schedule s{.chunks = R, .outbox = R * std::min(t.size - 1, 1U)};
    for (uint32_t c = 0; c < R; c++) {
        rings[c].chunks[rings[c].position(t.root)].push_back(c);
        if (t.rank == t.root) s.copy(output(c), input(c));
    }
    ring_all_gather(s, rings);
    return s;
}

SumOrder order_ring(Collective collective, const Team &t, const Choices &choices, uint32_t chunk) {
    const uint32_t R = rings_used(t, choices);
    const std::vector<uint32_t> order = order_of(t, chunk % R);
    uint32_t first = chunk / R % t.size;
    if (collective == Collective::reduce_scatter)
        while (order[(first + t.size - 1) % t.size] != chunk) first = (first + 1) % t.size;
    return SumOrder::in_turn(order, first);
}

uint32_t rounds_ring(Collective collective, uint32_t P) {
    if (collective == Collective::all_reduce) return 2 * (P - 1);
    return collective == Collective::reduce && P > 1 ? P : P - 1; // the last is from owner to root
}

uint32_t outer_rounds_ring(Collective collective, const Team &t) {
    if (!t.places) return 0;
    const std::vector<uint32_t> order = order_of(t, 0);
    const Partition &hosts = t.places->hosts();
    uint64_t crossings = 0;
    for (uint32_t at = 0; at < t.size; at++)
        if (hosts.group_of(order[at]) != hosts.group_of(order[(at + 1) % t.size])) crossings++;
    uint64_t all = rounds_ring(collective, t.size) * crossings;
    if (collective == Collective::reduce && t.size > 1) {
        all -= crossings; // owners send to the root past the ring
        for (uint32_t owner = 0; owner < t.size; owner++)
            if (hosts.group_of(owner) != hosts.group_of(t.root)) all++;
    }
    return static_cast<uint32_t>((all + t.size - 1) / t.size);
}

NoiseMoments noise_of_turns(uint32_t P) {
    NoiseMoments sums;
    for (uint32_t contributions = 1; contributions < P; contributions++)
        sums += NoiseMoments::of(contributions);
    return sums.shares_of(P);
}

// Hop i encodes the sum of i ranks, and the last hop the result. The encoding of earlier hops'
// losses is left out: a formula for Gaussian losses is wrong where they matter most.
NoiseMoments noise_ring(Collective collective, uint32_t P) {
    if (P == 1) return {};
    const NoiseMoments sums = noise_of_turns(P);
    switch (collective) {
    case Collective::all_reduce: return sums + NoiseMoments::of(1);
    case Collective::reduce: // the root keeps its chunks' sums
        return sums + noise_of_parts(collective, P);
    case Collective::reduce_scatter: return sums;
    default: return NoiseMoments::of(1);
    }
}

} // namespace qccl
