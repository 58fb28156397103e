// Recursive halving: the team is split in two, again and again, and each half sends the other one
// the partial sums of its chunks. It sends as few bytes as the ring, in logarithmically many
// rounds. Recursive doubling: partners exchange everything that they have summed, so that each rank
// has the sum of two ranks, then of four, then of all. It needs few messages and the fewest rounds
// for them, but every byte travels each time. In a scan each rank sends its sum to the rank as far
// behind as the sum is long, so that its sum covers the one, two, four ... ranks up to itself.

#include "coll/emitters.hpp"
#include "coll/groups.hpp"

#include <algorithm>
#include <bit>
#include <vector>

namespace qccl {

// ---- Halving

namespace {

// A received part of a chunk: the position that sent it, and the slot it lies in.
struct HalfReceived {
    uint32_t from;
    Slot wire;
};

// Returns the rank's part of the chunk so far: its own part, then the received ones in increasing
// position.
Slot sum_up(Schedule &s, uint32_t chunk, Slot own, std::vector<HalfReceived> &arrivals) {
    if (arrivals.empty()) return own;
    std::sort(arrivals.begin(), arrivals.end(),
              [](const HalfReceived &a, const HalfReceived &b) { return a.from < b.from; });
    if (own.is(SlotKind::input)) s.reduce(sum(chunk), own);
    for (const HalfReceived &arrival : arrivals) s.reduce(sum(chunk), arrival.wire);
    return sum(chunk);
}

template <class Visitor> void each_chunk(const Group &g, const Split &positions, Visitor visit) {
    for (uint32_t at = positions.begin; at < positions.end; at++)
        for (const uint32_t c : g.chunks[at]) visit(c);
}

// At each split a rank sends its parts of the other half's chunks. Received parts are added only
// when their sum is sent, because they do not arrive in the order of the sum.
void halving_reduce_scatter(Schedule &s, const Group &g, Parts &parts) {
    std::vector<std::vector<HalfReceived>> arrivals(s.chunks);
    for (const Split &split : splits_of(g.size(), g.own)) {
        each_chunk(g, split.other(g.own), [&](uint32_t c) {
            s.send(g.ranks[split.partner(g.own)], sum_up(s, c, parts[c], arrivals[c]));
        });
        for (const uint32_t peer : split.partners_of(g.own))
            each_chunk(g, split.half(g.own), [&](uint32_t c) {
                arrivals[c].push_back({peer, wire(s.wires)});
                s.recv(g.ranks[peer], arrivals[c].back().wire, c);
            });
    }
    for (const uint32_t c : g.own_chunks()) parts[c] = sum_up(s, c, parts[c], arrivals[c]);
}

// The way back: a rank receives the results of the other half's chunks from the partner that it
// sent its sums to.
void halving_all_gather(Schedule &s, const Group &g) {
    const auto splits = splits_of(g.size(), g.own);
    for (auto split = splits.rbegin(); split != splits.rend(); ++split) {
        for (const uint32_t peer : split->partners_of(g.own))
            each_chunk(g, split->half(g.own),
                       [&](uint32_t c) { s.send(g.ranks[peer], output(c)); });
        each_chunk(g, split->other(g.own),
                   [&](uint32_t c) { s.recv(g.ranks[split->partner(g.own)], output(c)); });
    }
}

// Each member sends its sums to its partner in the owner's half.
std::vector<uint32_t> parents_of(uint32_t size, uint32_t owner) {
    std::vector<uint32_t> parents(size, owner);
    for (Split split = Split::of(0, size); split.size() > 1; split = split.half(owner)) {
        const Split theirs = split.other(owner);
        for (uint32_t at = theirs.begin; at < theirs.end; at++) parents[at] = split.partner(at);
    }
    return parents;
}

SumOrder::Term halving_fold(std::vector<SumOrder::Term> members, uint32_t owner) {
    const auto parents = parents_of(static_cast<uint32_t>(members.size()), owner);
    return SumOrder::of_tree(parents, std::move(members));
}

// Each member but the owner passes on its own contributions and those of the members below it.
NoiseMoments halving_encoded(std::span<const uint32_t> weights, uint32_t owner) {
    const auto parents = parents_of(static_cast<uint32_t>(weights.size()), owner);
    std::vector<uint32_t> passed(weights.size());
    for (uint32_t at = 0; at < weights.size(); at++)
        for (uint32_t passing = at; passing != owner; passing = parents[passing])
            passed[passing] += weights[at];
    NoiseMoments total;
    for (const uint32_t contributions : passed) total += NoiseMoments::of(contributions);
    return total;
}

// Returns all splits of `size` positions, each before the splits of its halves.
std::vector<Split> all_splits(uint32_t size) {
    std::vector<Split> splits{Split::of(0, size)};
    for (size_t i = 0; i < splits.size(); i++)
        for (const Split half : {splits[i].half(splits[i].begin), splits[i].half(splits[i].middle)})
            if (half.size() > 1) splits.push_back(half);
    return splits;
}

uint32_t halving_rounds_one_way(uint32_t size) {
    return rounds_halving(Collective::reduce_scatter, {.size = size});
}

} // namespace

const GroupPhases halving_phases{halving_reduce_scatter, halving_all_gather, halving_fold,
                                 halving_encoded, halving_rounds_one_way};

// No send waits for a free wire slot: every value that a rank encodes has its own slot.
Schedule all_reduce_halving(const Team &t) {
    return all_reduce_by(halving_phases, each_with_its_own(t), t.size == 1 ? 0 : t.size);
}

Schedule reduce_scatter_halving(const Team &t) {
    return reduce_scatter_by(halving_phases, each_with_its_own(t), t.size - 1);
}

Schedule all_gather_halving(const Team &t) {
    return all_gather_by(halving_phases, each_with_its_own(t));
}

Schedule reduce_halving(const Team &t) {
    return reduce_by(halving_phases, each_with_its_own(t), t.root, t.size == 1 ? 0 : t.size);
}

SumOrder by_halving(Collective, uint32_t ranks, uint32_t chunk) {
    return SumOrder::by_tree(parents_of(ranks, chunk % ranks));
}

// In an uneven split the extra rank receives nothing, so the longest chain of messages can be
// shorter than the number of splits.
uint32_t rounds_halving(Collective collective, const Team &t) {
    const uint32_t P = t.size;
    if (P == 1) return 0;
    const std::vector<Split> splits = all_splits(P);
    std::vector<uint32_t> rounds(P);
    const auto exchange = [&](const Split &split, bool is_way_back) {
        const std::vector before(rounds.begin() + split.begin, rounds.begin() + split.end);
        for (uint32_t rank = split.begin; rank < split.end; rank++) {
            const uint32_t partner = split.partner(rank);
            const uint32_t from = is_way_back ? partner : rank, to = is_way_back ? rank : partner;
            rounds[to] = std::max(rounds[to], before[from - split.begin] + 1);
        }
    };
    if (collective != Collective::all_gather)
        for (const Split &split : splits) exchange(split, false);
    if (collective == Collective::all_reduce || collective == Collective::all_gather)
        for (auto split = splits.rbegin(); split != splits.rend(); ++split) exchange(*split, true);
    if (collective == Collective::reduce)
        for (uint32_t owner = 0; owner < P; owner++)
            if (owner != t.root) rounds[t.root] = std::max(rounds[t.root], rounds[owner] + 1);
    return *std::max_element(rounds.begin(), rounds.end());
}

// All sums of a rank have the same number of contributions: those of the ranks that have sent it
// their sums.
NoiseMoments noise_halving(Collective collective, uint32_t P) {
    if (P == 1) return {};
    if (collective == Collective::all_gather) return NoiseMoments::of(1);
    NoiseMoments encoded; // of contributions, over all partial sums of all chunks
    std::vector<uint32_t> summed(P, 1);
    for (const Split &split : all_splits(P)) {
        const std::vector<uint32_t> before = summed;
        for (uint32_t rank = split.begin; rank < split.end; rank++) {
            encoded += NoiseMoments::of(before[rank], split.other(rank).size());
            summed[split.partner(rank)] += before[rank];
        }
    }
    const NoiseMoments parts = encoded.shares_of(P) * (1.0 / P);
    if (collective == Collective::all_reduce) return parts + NoiseMoments::of(1);
    return collective == Collective::reduce ? parts + noise_of_parts(collective, P) : parts;
}

// ---- Doubling

namespace {

// The number of rounds in which `size` ranks reach their sum.
uint32_t height(uint32_t size) { return static_cast<uint32_t>(std::bit_width(size - 1)); }

SumOrder::Term sum_of(const Team &t, uint32_t begin, uint32_t end) {
    if (end - begin == 1) return {.rank = t.rank_at(begin)};
    const uint32_t middle = Split::of(begin, end).middle;
    return {.operands = {sum_of(t, begin, middle), sum_of(t, middle, end)}};
}

// The lower half's part comes first. Two sums may be added in either order: operators commute, and
// NaN is canonical.
void add(Schedule &s, Slot own, Slot came, bool is_lower) {
    if (!own.is(SlotKind::input)) return s.reduce(sum(0), came);
    if (!is_lower) s.reduce(sum(0), came);
    s.reduce_as_encoded(sum(0), own);
    if (is_lower) s.reduce(sum(0), came);
}

} // namespace

// Ranks that are neighbours in rings are near each other and exchange first.
Schedule all_reduce_doubling(const Team &t) {
    Schedule s{.chunks = 1, .outbox = t.size == 1 ? 0 : height(t.size)};
    const uint32_t at = t.position(t.rank);
    const auto splits = splits_of(t.size, at);
    Slot own = input(0);
    for (auto split = splits.rbegin(); split != splits.rend(); ++split) {
        const Split half = split->half(at);
        if (half.size() > 1) s.make_common(t.rank_at(half.begin), height(half.size()));
        for (const uint32_t peer : split->partners_of(at)) s.send(t.rank_at(peer), own, 0);
        const Slot came = wire(s.wires);
        s.recv(t.rank_at(split->partner(at)), came, 0);
        add(s, own, came, split->is_lower(at));
        own = sum(0);
    }
    s.finish(output(0), own);
    return s;
}

Schedule barrier_doubling(const Team &t) { return all_reduce_doubling(t); }

namespace {

// Sums the values of the ranks from `first` to this one. Returns the slot of the sum. `own` is this
// rank's value: its input, or what the rank before it has sent.
Slot sum_prefix(Schedule &s, const Team &t, uint32_t first, Slot own) {
    const auto sends = [&](uint32_t distance) { return t.rank + distance < t.size; };
    const auto receives = [&](uint32_t distance) { return t.rank >= first + distance; };
    for (uint32_t distance = 1; sends(distance) || receives(distance); distance *= 2) {
        if (sends(distance)) s.send(t.rank + distance, own, 0);
        if (!receives(distance)) continue;
        const Slot came = wire(s.wires);
        s.recv(t.rank - distance, came, 0);
        s.reduce(sum(0), came);
        if (own.is(SlotKind::input)) s.reduce_as_encoded(sum(0), own);
        if (own.is(SlotKind::wire)) s.reduce(sum(0), own);
        own = sum(0);
    }
    return own;
}

// A partial sum on one rank, and the encodes of its contributions.
struct PrefixNoise {
    uint32_t contributions = 1;
    NoiseMoments kept = {}, sent = {}; // of contributions: as this rank has it, and as encoded
    bool is_encoded = false;

    void encode() {
        if (!is_encoded) sent = kept + NoiseMoments::of(contributions);
        is_encoded = true;
    }
};

// Returns the noise of all results together for each of their contributions. `values` has what the
// ranks begin with.
NoiseMoments noise_of_prefixes(std::vector<PrefixNoise> values) {
    const size_t ranks = values.size();
    for (size_t distance = 1; distance < ranks; distance *= 2) {
        for (size_t i = 0; i + distance < ranks; i++) values[i].encode();
        const std::vector<PrefixNoise> before = values;
        for (size_t i = distance; i < ranks; i++) {
            if (values[i].contributions == 1) values[i].encode();
            const PrefixNoise &own = values[i], &other = before[i - distance];
            values[i] = {.contributions = own.contributions + other.contributions,
                         .kept = (own.is_encoded ? own.sent : own.kept) + other.sent};
        }
    }
    NoiseMoments noise;
    double contributions = 0;
    for (const PrefixNoise &value : values) {
        const NoiseMoments &encoded = value.is_encoded ? value.sent : value.kept;
        noise += encoded.shares_of(value.contributions) * value.contributions;
        contributions += value.contributions;
    }
    return contributions == 0 ? NoiseMoments() : noise * (1 / contributions);
}

} // namespace

Schedule scan_doubling(const Team &t) {
    Schedule s{.chunks = 1, .outbox = t.size == 1 ? 0 : height(t.size)};
    s.copy(output(0), sum_prefix(s, t, 0, input(0)));
    return s;
}

// Each rank takes the value of the rank before it, and the ranks from 1 on sum these.
Schedule exscan_doubling(const Team &t) {
    Schedule s{.chunks = 1, .outbox = t.size == 1 ? 0 : 1 + height(t.size)};
    if (t.rank + 1 < t.size) s.send(t.rank + 1, input(0));
    if (t.rank == 0) return s;
    const Slot came = wire(s.wires);
    s.recv(t.rank - 1, came, 0);
    s.copy(output(0), sum_prefix(s, t, 1, came));
    return s;
}

SumOrder by_doubling(Collective collective, const Team &t, uint32_t) {
    if (is_prefix(collective)) return SumOrder::in_turn(t.size);
    return SumOrder::of(sum_of(t, 0, t.size), t.size);
}

// The messages and their dependencies are those of halving's way back.
uint32_t rounds_doubling(Collective collective, uint32_t P) {
    // The first ranks have less to wait for.
    if (collective == Collective::scan) return static_cast<uint32_t>(std::bit_width(P)) - 1;
    if (collective == Collective::exscan)
        return P == 1 ? 0 : static_cast<uint32_t>(std::bit_width(P - 1));
    return rounds_halving(Collective::all_gather, {.size = P});
}

// Each half of a split has one sum, which all of its ranks encode alike.
NoiseMoments noise_doubling(Collective collective, uint32_t P) {
    if (collective == Collective::scan) return noise_of_prefixes(std::vector<PrefixNoise>(P));
    if (collective == Collective::exscan)
        return noise_of_prefixes(std::vector<PrefixNoise>(
            P - 1, {.kept = NoiseMoments::of(1), .sent = NoiseMoments::of(1), .is_encoded = true}));
    if (P == 1) return {};
    NoiseMoments encoded; // of contributions
    for (const Split &split : all_splits(P))
        for (const uint32_t at : {split.begin, split.middle})
            encoded += NoiseMoments::of(split.half(at).size());
    return encoded.shares_of(P);
}

} // namespace qccl
