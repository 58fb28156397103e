#include "coll/halving.hpp"

#include <algorithm>
#include <vector>

namespace qccl {

namespace {

// The ranks [begin, end) in two halves, of which the lower may be larger by one rank.
struct Split {
    uint32_t begin, middle, end;

    static Split of(uint32_t begin, uint32_t end) {
        return {begin, begin + (end - begin + 1) / 2, end};
    }
    bool is_lower(uint32_t rank) const { return rank < middle; }
    // The half that the rank is in, and the other one.
    Split half(uint32_t rank) const { return is_lower(rank) ? of(begin, middle) : of(middle, end); }
    Split other(uint32_t rank) const {
        return is_lower(rank) ? of(middle, end) : of(begin, middle);
    }
    uint32_t size() const { return end - begin; }

    // Whom the rank sends its sums to. One rank too many shares its neighbour's partner.
    uint32_t partner(uint32_t rank) const {
        return is_lower(rank) ? std::min(middle + (rank - begin), end - 1)
                              : begin + (rank - middle);
    }
    // Who sends the rank theirs, in increasing rank.
    std::vector<uint32_t> senders(uint32_t rank) const {
        const Split theirs = other(rank);
        std::vector<uint32_t> found;
        for (uint32_t peer = theirs.begin; peer < theirs.end; peer++)
            if (partner(peer) == rank) found.push_back(peer);
        return found;
    }
};

// From the whole team down to the rank and one other.
std::vector<Split> splits_of(const Team &t) {
    std::vector<Split> splits;
    for (Split at = Split::of(0, t.size); at.size() > 1; at = at.half(t.rank)) splits.push_back(at);
    return splits;
}

// What has come for one chunk: from whom, and where it lies.
struct Part {
    uint32_t peer;
    Slot wire;
};

// The rank's sum of the chunk so far: its own input, then the parts in increasing rank.
Slot sum_up(Schedule &s, uint32_t chunk, std::vector<Part> &parts) {
    if (parts.empty()) return input(chunk);
    std::sort(parts.begin(), parts.end(),
              [](const Part &a, const Part &b) { return a.peer < b.peer; });
    s.reduce(sum(chunk), input(chunk));
    for (const Part &part : parts) s.reduce(sum(chunk), part.wire);
    return sum(chunk);
}

// At every split a rank gives away what it has of the other half's chunks. Parts are added when
// their sum is given away, for they come in another order. Returns where the own chunk lies.
Slot collect(Schedule &s, const Team &t) {
    std::vector<std::vector<Part>> parts(t.size);
    uint32_t wires = 0;
    for (const Split &split : splits_of(t)) {
        const Split mine = split.half(t.rank), theirs = split.other(t.rank);
        for (uint32_t c = theirs.begin; c < theirs.end; c++)
            s.send(split.partner(t.rank), sum_up(s, c, parts[c]));
        for (const uint32_t peer : split.senders(t.rank))
            for (uint32_t c = mine.begin; c < mine.end; c++) {
                parts[c].push_back({peer, wire(wires++)});
                s.recv(peer, parts[c].back().wire, c);
            }
    }
    return sum_up(s, t.rank, parts[t.rank]);
}

// The way back: whoever sent sums of the other half's chunks gets the results from there.
void deliver(Schedule &s, const Team &t) {
    const auto splits = splits_of(t);
    for (auto split = splits.rbegin(); split != splits.rend(); ++split) {
        const Split mine = split->half(t.rank), theirs = split->other(t.rank);
        for (const uint32_t peer : split->senders(t.rank))
            for (uint32_t c = mine.begin; c < mine.end; c++) s.send(peer, output(c));
        for (uint32_t c = theirs.begin; c < theirs.end; c++)
            s.recv(split->partner(t.rank), output(c));
    }
}

// All splits of the whole team, each before those of its halves.
std::vector<Split> all_splits(uint32_t ranks) {
    std::vector<Split> splits{Split::of(0, ranks)};
    for (size_t i = 0; i < splits.size(); i++)
        for (const Split half : {splits[i].half(splits[i].begin), splits[i].half(splits[i].middle)})
            if (half.size() > 1) splits.push_back(half);
    return splits;
}

} // namespace

// No wire slot is waited for: all that a rank encodes has one of its own.
Schedule all_reduce_halving(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size == 1 ? 0 : t.size};
    s.finish(output(t.rank), collect(s, t));
    deliver(s, t);
    return s;
}

Schedule reduce_scatter_halving(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = t.size - 1};
    s.finish(output(t.rank), collect(s, t));
    return s;
}

Schedule all_gather_halving(const Team &t) {
    Schedule s{.chunks = t.size, .outbox = std::min(t.size - 1, 1U)};
    s.copy(output(t.rank), input(t.rank));
    deliver(s, t);
    return s;
}

// A chunk's sums go, from each rank, to the partner in the half that its owner is in.
SumOrder by_halving(Collective, uint32_t ranks, uint32_t chunk) {
    const uint32_t owner = chunk % ranks;
    std::vector<uint32_t> parents(ranks, owner);
    for (Split split = Split::of(0, ranks); split.size() > 1; split = split.half(owner)) {
        const Split theirs = split.other(owner);
        for (uint32_t rank = theirs.begin; rank < theirs.end; rank++)
            parents[rank] = split.partner(rank);
    }
    return SumOrder::by_tree(parents);
}

// A rank too many hears of nothing at its split, so that chains of messages may be shorter than
// there are splits.
uint32_t rounds_halving(Collective collective, uint32_t P) {
    if (P == 1) return 0;
    const std::vector<Split> splits = all_splits(P);
    std::vector<uint32_t> rounds(P);
    const auto exchange = [&](const Split &split, bool is_way_back) {
        const std::vector<uint32_t> before = rounds;
        for (uint32_t rank = split.begin; rank < split.end; rank++) {
            const uint32_t partner = split.partner(rank);
            const uint32_t from = is_way_back ? partner : rank, to = is_way_back ? rank : partner;
            rounds[to] = std::max(rounds[to], before[from] + 1);
        }
    };
    if (collective != Collective::all_gather)
        for (const Split &split : splits) exchange(split, false);
    if (collective != Collective::reduce_scatter)
        for (auto split = splits.rbegin(); split != splits.rend(); ++split) exchange(*split, true);
    return *std::max_element(rounds.begin(), rounds.end());
}

// A rank's sums all have as many contributions: those of whoever has given it theirs.
double noise_halving(Collective collective, uint32_t P) {
    if (P == 1) return 0;
    if (collective == Collective::all_gather) return 1;
    uint64_t encoded = 0; // contributions, in all partial sums of all chunks
    std::vector<uint32_t> summed(P, 1);
    for (const Split &split : all_splits(P)) {
        const std::vector<uint32_t> before = summed;
        for (uint32_t rank = split.begin; rank < split.end; rank++) {
            encoded += uint64_t{split.other(rank).size()} * before[rank];
            summed[split.partner(rank)] += before[rank];
        }
    }
    const double parts = static_cast<double>(encoded) / P / P;
    return collective == Collective::all_reduce ? parts + 1 : parts;
}

} // namespace qccl
