// Chain: each rank adds its values to what the rank before it sends, and passes on the sum. It
// sends the fewest bytes over every link, and segments follow one another down the chain. A reduce
// goes round the ring to the root. A scan and an exscan go from rank to rank, because the order of
// ranks is that of their results.

#include "coll/emitters.hpp"

#include <algorithm>

namespace qccl {

namespace {

uint32_t one_if_several(const Team &t) { return std::min(t.size - 1, 1U); }

// Receives the sum of the ranks before this one, and returns its slot.
Slot receive_sum(Schedule &s, uint32_t from) {
    const Slot came = wire(s.wires);
    s.recv(from, came, 0);
    return came;
}

// Adds the contribution of this rank, which comes last.
Slot add_own(Schedule &s, Slot before) {
    s.reduce(sum(0), before);
    s.reduce(sum(0), input(0));
    return sum(0);
}

} // namespace

Schedule reduce_chain(const Team &t) {
    Schedule s{.chunks = 1, .outbox = one_if_several(t)};
    const uint32_t at = t.position(t.rank), last = t.position(t.root);
    const uint32_t first = (last + 1) % t.size;
    Slot own = input(0);
    if (at != first) own = add_own(s, receive_sum(s, t.rank_at((at + t.size - 1) % t.size)));
    if (at == last)
        s.finish(output(0), own);
    else
        s.send(t.rank_at((at + 1) % t.size), own);
    return s;
}

Schedule scan_chain(const Team &t) {
    Schedule s{.chunks = 1, .outbox = one_if_several(t)};
    const Slot own = t.rank == 0 ? input(0) : add_own(s, receive_sum(s, t.rank - 1));
    if (t.rank + 1 < t.size) s.send(t.rank + 1, own);
    s.copy(output(0), own);
    return s;
}

// In place the result takes the place of the input, so it is stored last.
Schedule exscan_chain(const Team &t) {
    Schedule s{.chunks = 1, .outbox = one_if_several(t)};
    const bool is_last = t.rank + 1 == t.size;
    if (t.rank == 0) {
        if (!is_last) s.send(1, input(0));
        return s;
    }
    const Slot before = receive_sum(s, t.rank - 1);
    if (!is_last) s.send(t.rank + 1, add_own(s, before));
    s.copy(output(0), before);
    return s;
}

uint32_t rounds_chain(Collective, uint32_t P) { return P - 1; }

uint32_t outer_rounds_chain(Collective collective, const Team &t) {
    if (!t.places) return 0;
    const Partition &hosts = t.places->hosts();
    const uint32_t start = is_prefix(collective) ? 0 : t.position(t.root) + 1;
    const auto host_at = [&](uint32_t place) {
        const uint32_t position = (start + place) % t.size;
        return hosts.group_of(is_prefix(collective) ? position : t.rank_at(position));
    };
    uint32_t crossings = 0;
    for (uint32_t place = 1; place < t.size; place++)
        crossings += host_at(place) != host_at(place - 1);
    return crossings;
}

SumOrder by_chain(Collective collective, const Team &t, uint32_t) {
    if (is_prefix(collective)) return SumOrder::in_turn(t.size);
    std::vector<uint32_t> ring;
    for (uint32_t at = 0; at < t.size; at++) ring.push_back(t.rank_at(at));
    return SumOrder::in_turn(ring, (t.position(t.root) + 1) % t.size);
}

// Rank r encodes the sum of r + 1 ranks, and all ranks after it build on that. A scan's result is
// what was encoded, except on the last rank. Results count by the number of their contributions.
NoiseMoments noise_chain(Collective collective, uint32_t P) {
    if (collective == Collective::reduce) return noise_of_turns(P);
    NoiseMoments encoded, total; // of numbers of contributions
    double contributions = 0;
    const auto add_result = [&](double terms) {
        if (terms == 0) return;
        total += encoded.shares_of(terms) * terms;
        contributions += terms;
    };
    for (uint32_t rank = 0; rank < P; rank++) {
        const bool is_last = rank + 1 == P;
        if (collective == Collective::exscan) add_result(rank);
        if (!is_last) encoded += NoiseMoments::of(rank + 1);
        if (collective == Collective::scan) add_result(rank + 1);
    }
    return contributions == 0 ? NoiseMoments() : total * (1 / contributions);
}

} // namespace qccl
