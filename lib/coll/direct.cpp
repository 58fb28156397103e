// Direct: every rank owns a chunk and exchanges data with all other ranks at once. It sends as few
// bytes as the ring, in two rounds, and the sum is in rank order with one rounding. This file
// writes the schedules of direct, and the phases of direct and of a star in which each owner sums.
// Oneshot: every rank sends each other rank everything that it needs, and each rank sums the
// decoded bytes of all ranks, its own included. One round, for small messages. What does not sum is
// direct's, but for the broadcast.

#include "coll/emitters.hpp"

#include <algorithm>
#include <numeric>

namespace qccl {

// Each member handles the others in order, beginning with the member after itself, so that no
// member comes first for all others.

void scatter_inputs(Schedule &s, const Group &g) {
    for (uint32_t i = 1; i < g.size(); i++)
        for (const uint32_t c : g.chunks[g.after(i)]) s.send(g.ranks[g.after(i)], input(c));
}

Slot receive_and_sum(Schedule &s, const Group &g, uint32_t chunk, OwnInput own) {
    // A single contribution is no sum: its bits must not change.
    if (g.size() == 1) return input(chunk);
    const uint32_t first = s.wires;
    for (uint32_t i = 1; i < g.size(); i++) {
        const uint32_t peer = g.before(i);
        s.recv(g.ranks[peer], wire(first + (peer < g.own ? peer : peer - 1)), chunk);
    }
    s.reduce(sum(chunk), wire(first), g.own);
    if (own == OwnInput::as_encoded)
        s.reduce_as_encoded(sum(chunk), input(chunk));
    else
        s.reduce(sum(chunk), input(chunk));
    s.reduce(sum(chunk), wire(first + g.own), g.size() - 1 - g.own);
    return sum(chunk);
}

namespace {

void direct_reduce_scatter(Schedule &s, const Group &g, Parts &parts) {
    scatter_inputs(s, g);
    for (const uint32_t c : g.own_chunks()) parts[c] = receive_and_sum(s, g, c, OwnInput::exact);
}

// Every member sends the chunks that it owns to all others.
void direct_all_gather(Schedule &s, const Group &g) {
    for (uint32_t i = 1; i < g.size(); i++)
        for (const uint32_t c : g.own_chunks()) s.send(g.ranks[g.after(i)], output(c));
    for (uint32_t i = 1; i < g.size(); i++)
        for (const uint32_t c : g.chunks[g.before(i)]) s.recv(g.ranks[g.before(i)], output(c));
}

SumOrder::Term direct_fold(std::vector<SumOrder::Term> members, uint32_t) {
    return {.operands = std::move(members)};
}

void reduce_scatter_at_owner(Schedule &s, const Group &g, Parts &parts) {
    for (uint32_t i = 1; i < g.size(); i++)
        for (const uint32_t c : g.chunks[g.after(i)]) s.send(g.ranks[g.after(i)], parts[c]);
    for (const uint32_t c : g.own_chunks()) {
        if (g.size() == 1) continue;
        const uint32_t first = s.wires;
        for (uint32_t i = 1; i < g.size(); i++) {
            const uint32_t peer = g.before(i);
            s.recv(g.ranks[peer], wire(first + (peer < g.own ? peer : peer - 1)), c);
        }
        if (parts[c].is(SlotKind::input)) s.reduce(sum(c), parts[c]);
        s.reduce(sum(c), wire(first), g.size() - 1);
        parts[c] = sum(c);
    }
}

SumOrder::Term fold_at_owner(std::vector<SumOrder::Term> members, uint32_t owner) {
    std::rotate(members.begin(), members.begin() + owner, members.begin() + owner + 1);
    return {.operands = std::move(members)};
}

NoiseMoments direct_encoded(std::span<const uint32_t> weights, uint32_t owner) {
    NoiseMoments total;
    for (size_t at = 0; at < weights.size(); at++)
        if (at != owner) total += NoiseMoments::of(weights[at]);
    return total;
}

uint32_t direct_rounds_one_way(uint32_t size) { return std::min(size - 1, 1U); }

} // namespace

const GroupPhases direct_phases{direct_reduce_scatter, direct_all_gather, direct_fold,
                                direct_encoded, direct_rounds_one_way};
const GroupPhases star_phases{reduce_scatter_at_owner, direct_all_gather, fold_at_owner,
                              direct_encoded, direct_rounds_one_way};

Schedule all_reduce_direct(const Team &t) {
    return all_reduce_by(direct_phases, each_with_its_own(t), t.size == 1 ? 0 : t.size);
}

Schedule reduce_scatter_direct(const Team &t) {
    return reduce_scatter_by(direct_phases, each_with_its_own(t), t.size - 1);
}

Schedule all_gather_direct(const Team &t) {
    return all_gather_by(direct_phases, each_with_its_own(t));
}

// The root sends each rank its chunk, and every rank forwards its own chunk to the others.
Schedule broadcast_direct(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size == 1 ? 0 : t.size};
    if (t.rank == t.root) {
        for (uint32_t i = 1; i <= t.size; i++) {
            const uint32_t c = t.after(i);
            s.copy(output(c), input(c));
            if (c != t.rank) s.send(c, output(c));
        }
        for (uint32_t i = 1; i < t.size; i++) s.send(t.after(i), output(t.rank));
        return s;
    }
    s.recv(t.root, output(t.rank));
    for (uint32_t i = 1; i < t.size; i++)
        if (t.after(i) != t.root) s.send(t.after(i), output(t.rank));
    for (uint32_t i = 1; i < t.size; i++) s.recv(t.before(i), output(t.before(i)));
    return s;
}

Schedule reduce_direct(const Team &t) {
    return reduce_by(direct_phases, each_with_its_own(t), t.root, t.size == 1 ? 0 : t.size);
}

Schedule gather_direct(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = std::min(t.size - 1, 1U)};
    if (t.rank != t.root) {
        s.send(t.root, input(t.rank));
        return s;
    }
    s.copy(output(t.rank), input(t.rank));
    for (uint32_t i = 1; i < t.size; i++) s.recv(t.before(i), output(t.before(i)));
    return s;
}

Schedule scatter_direct(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size - 1};
    if (t.rank != t.root) {
        s.recv(t.root, output(t.rank));
        return s;
    }
    for (uint32_t i = 1; i < t.size; i++) s.send(t.after(i), input(t.after(i)));
    s.copy(output(t.rank), input(t.rank));
    return s;
}

Schedule all_to_all_direct(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size - 1};
    for (uint32_t i = 1; i < t.size; i++) s.send(t.after(i), input(t.chunk_with(t.after(i))));
    const uint32_t own = t.chunk_with(t.rank);
    s.copy(output(own), input(own));
    for (uint32_t i = 1; i < t.size; i++) receive_part(s, t, t.before(i), t.before(i));
    return s;
}

Schedule send_direct(const Team &t) {
    Schedule s{.chunks = 1, .outbox = std::min(t.size - 1, 1U)};
    const uint32_t taker = (t.root + 1) % t.size;
    if (t.size == 1)
        s.copy(output(0), input(0));
    else if (t.rank == t.root)
        s.send(taker, input(0));
    else if (t.rank == taker)
        s.recv(t.root, output(0));
    return s;
}

uint32_t rounds_direct(Collective collective, uint32_t P) {
    // A root of two ranks has nobody to forward its chunks to the other.
    const bool is_one_round = has_part_per_rank(collective) || collective == Collective::send ||
                              (collective == Collective::broadcast && P == 2);
    return P == 1 ? 0 : is_one_round ? 1 : 2;
}

// All ranks but the owner encode their part of the sum, and the owner encodes the result. A root
// has its own part as it is.
NoiseMoments noise_direct(Collective collective, uint32_t P) {
    if (P == 1) return {};
    const NoiseMoments terms = NoiseMoments::of(1.0 / P, P - 1);
    switch (collective) {
    case Collective::all_reduce: return terms + NoiseMoments::of(1);
    case Collective::reduce: return terms + noise_of_parts(collective, P);
    case Collective::reduce_scatter: return terms;
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all: return noise_of_parts(collective, P);
    default: return NoiseMoments::of(1);
    }
}

// ---- oneshot

Schedule all_reduce_oneshot(const Team &t) {
    Schedule s{.chunks = 1, .outbox = std::min(t.size - 1, 1U)};
    for (uint32_t i = 1; i < t.size; i++) s.send(t.after(i), input(0));
    const Group all(ranks_in_turn(t.size), t.rank);
    s.finish(output(0), receive_and_sum(s, all, 0, OwnInput::as_encoded));
    return s;
}

// The outbox has a slot for the rank's own chunk, too, which is not sent: without it, two ranks
// could each wait for the other to release a slot before they sum, for ever.
Schedule reduce_scatter_oneshot(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size == 1 ? 0 : t.size};
    const Group all = each_with_its_own(t);
    scatter_inputs(s, all);
    s.finish(output(t.rank), receive_and_sum(s, all, t.rank, OwnInput::as_encoded));
    return s;
}

Schedule broadcast_oneshot(const Team &t) {
    Schedule s{.chunks = 1, .outbox = std::min(t.size - 1, 1U)};
    if (t.rank != t.root) {
        s.recv(t.root, output(0));
        return s;
    }
    s.copy(output(0), input(0));
    for (uint32_t i = 1; i < t.size; i++) s.send(t.after(i), output(0));
    return s;
}

Schedule reduce_oneshot(const Team &t) {
    Schedule s{.chunks = 1, .outbox = std::min(t.size - 1, 1U)};
    if (t.rank != t.root) {
        s.send(t.root, input(0));
        return s;
    }
    const Group all(ranks_in_turn(t.size), t.rank);
    s.finish(output(0), receive_and_sum(s, all, 0, OwnInput::as_encoded));
    return s;
}

namespace {

// Every rank sends its input to all ranks after it, and sums what those before it have sent.
Schedule prefix_oneshot(const Team &t, bool adds_own) {
    Schedule s{.chunks = 1, .outbox = std::min(t.size - 1, 1U)};
    for (uint32_t rank = t.rank + 1; rank < t.size; rank++) s.send(rank, input(0));
    const Slot first = wire(s.wires);
    for (uint32_t rank = 0; rank < t.rank; rank++) s.recv(rank, first.after(rank), 0);
    const uint32_t terms = t.rank + (adds_own ? 1 : 0);
    if (terms == 0) return s;
    Slot result = adds_own ? input(0) : first; // a single contribution is no sum
    if (terms > 1) {
        result = sum(0);
        s.reduce(result, first, t.rank);
        if (adds_own) s.reduce_as_encoded(result, input(0));
    }
    s.copy(output(0), result);
    return s;
}

} // namespace

Schedule scan_oneshot(const Team &t) { return prefix_oneshot(t, true); }
Schedule exscan_oneshot(const Team &t) { return prefix_oneshot(t, false); }

Schedule barrier_oneshot(const Team &t) { return all_reduce_oneshot(t); }

uint32_t rounds_oneshot(Collective, uint32_t P) { return std::min(P - 1, 1U); }

// Every contribution to a result is encoded exactly once, except in what is direct's: a root's own
// part, and the part that a rank has for itself.
NoiseMoments noise_oneshot(Collective collective, uint32_t P) {
    if (!reduces(collective)) return noise_direct(collective, P);
    if (P == 1) return {};
    if (!is_prefix(collective)) return NoiseMoments::of(1.0 / P, P);
    // Results count by the number of their contributions.
    NoiseMoments total;
    double contributions = 0;
    for (uint32_t terms = 1; terms <= (collective == Collective::scan ? P : P - 1); terms++) {
        total += NoiseMoments::of(1.0 / terms, terms) * terms;
        contributions += terms;
    }
    return total * (1 / contributions);
}

} // namespace qccl
