// Recursive doubling: partners exchange everything that they have summed, so that each rank has the
// sum of two ranks, then of four, then of all. It needs few messages and the fewest rounds for
// them, but every byte travels each time. This file writes its schedules.

#include "coll/emitters.hpp"
#include "coll/groups.hpp"

#include <bit>

namespace qccl {

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

SumOrder by_doubling(Collective, const Team &t, uint32_t) {
    return SumOrder::of(sum_of(t, 0, t.size), t.size);
}

// The messages and their dependencies are those of halving's way back.
uint32_t rounds_doubling(Collective, uint32_t P) {
    return rounds_halving(Collective::all_gather, P);
}

// A contribution is encoded once for each split that its rank takes part in.
double noise_doubling(Collective, uint32_t P) {
    uint64_t encoded = 0;
    for (uint32_t at = 0; at < P; at++) encoded += splits_of(P, at).size();
    return static_cast<double>(encoded) / P;
}

} // namespace qccl
