// The author's verbs append steps. A SumOrder numbers the contributions of a sum from left to
// right, and keeps where each operand and its sum begin and end.
#include "schedule/schedule.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace qccl {

// ---- Steps of a rank

namespace {

uint32_t chunk_or(uint32_t chunk, Slot slot) {
    return chunk == Schedule::chunk_of_slot ? slot.index : chunk;
}

void count_wires(Schedule &schedule, Slot slot, uint32_t slots = 1) {
    if (slot.is(SlotKind::wire)) schedule.wires = std::max(schedule.wires, slot.index + slots);
}

} // namespace

void Schedule::send(uint32_t peer, Slot src, uint32_t chunk) {
    count_wires(*this, src);
    steps.push_back({.verb = Verb::send, .src = src, .chunk = chunk_or(chunk, src), .peer = peer});
}

void Schedule::send_finished(uint32_t peer, Slot src) {
    send(peer, src);
    steps.back().flags |= Step::finishes;
}

void Schedule::recv(uint32_t peer, Slot dst, uint32_t chunk) {
    count_wires(*this, dst);
    steps.push_back({.verb = Verb::recv, .dst = dst, .chunk = chunk_or(chunk, dst), .peer = peer});
}

void Schedule::reduce(Slot dst, Slot src, uint32_t sources) {
    constexpr uint32_t most = std::numeric_limits<uint16_t>::max();
    count_wires(*this, src, sources);
    for (uint32_t done = 0; done < sources; done += most) {
        const auto part = static_cast<uint16_t>(std::min(most, sources - done));
        steps.push_back({.verb = Verb::reduce,
                         .sources = part,
                         .dst = dst,
                         .src = src.after(done),
                         .chunk = dst.index});
    }
}

void Schedule::reduce_as_encoded(Slot dst, Slot src) {
    reduce(dst, src);
    steps.back().flags |= Step::as_encoded;
}

void Schedule::make_common(uint32_t first, uint32_t ordinal) {
    Step &sum = steps.back();
    sum.flags |= Step::common;
    sum.peer = first;
    sum.ordinal = ordinal;
}

void Schedule::copy(Slot dst, Slot src) {
    count_wires(*this, src);
    steps.push_back({.verb = Verb::copy, .dst = dst, .src = src, .chunk = dst.index});
}

void Schedule::finish(Slot dst, Slot src) {
    copy(dst, src);
    steps.back().flags |= Step::finishes;
}

// ---- Order of a sum

namespace {

using Term = SumOrder::Term;

struct OrderTree {
    std::vector<std::vector<uint32_t>> children; // ascending
    uint32_t root = 0;

    explicit OrderTree(std::span<const uint32_t> parents) : children(parents.size()) {
        for (uint32_t i = 0; i < parents.size(); i++) {
            if (parents[i] == i)
                root = i;
            else
                children[parents[i]].push_back(i);
        }
    }
    Term sum_of(uint32_t at, std::vector<Term> &members) const {
        if (children[at].empty()) return std::move(members[at]);
        Term sum;
        sum.operands.push_back(std::move(members[at]));
        for (const uint32_t child : children[at]) sum.operands.push_back(sum_of(child, members));
        return sum;
    }
};

} // namespace

SumOrder SumOrder::in_turn(uint32_t ranks, uint32_t first) {
    SumOrder order(ranks);
    order.first_ = first;
    return order;
}

SumOrder SumOrder::in_turn(std::span<const uint32_t> ring, uint32_t first) {
    const auto ranks = static_cast<uint32_t>(ring.size());
    SumOrder order(ranks);
    order.places_.resize(ranks);
    for (uint32_t at = 0; at < ranks; at++) order.places_[ring[at]] = (at + ranks - first) % ranks;
    return order;
}

SumOrder SumOrder::by_tree(std::span<const uint32_t> parents) {
    std::vector<Term> members(parents.size());
    for (uint32_t rank = 0; rank < members.size(); rank++) members[rank].rank = rank;
    return of(of_tree(parents, std::move(members)), static_cast<uint32_t>(parents.size()));
}

SumOrder SumOrder::of(const Term &sum, uint32_t ranks) {
    SumOrder order(ranks);
    order.places_.resize(ranks);
    order.begins_.resize(ranks);
    order.ends_.resize(ranks);
    uint32_t next = 0;
    order.lay(sum, next);
    return order;
}

Term SumOrder::of_tree(std::span<const uint32_t> parents, std::vector<Term> members) {
    const OrderTree tree(parents);
    return tree.sum_of(tree.root, members);
}

// Gives places to the contributions of `term`; `next` is the next free place. The first operand is
// not added to anything, so it gets no begin and no end.
void SumOrder::lay(const Term &term, uint32_t &next) {
    if (term.operands.empty()) {
        places_[term.rank] = next++;
        return;
    }
    const uint32_t begin = next;
    for (const Term &operand : term.operands) {
        const uint32_t start = next;
        lay(operand, next);
        if (start == begin) continue;
        begins_[start] = begin;
        ends_[start] = next;
    }
}

SumOrder by_rank(Collective, uint32_t ranks, uint32_t) { return SumOrder::in_turn(ranks); }

SumOrder by_ring(Collective collective, uint32_t ranks, uint32_t chunk) {
    // A reduce-scatter's chunk must end at its owner.
    const uint32_t ahead = collective == Collective::reduce_scatter ? 1 : 0;
    return SumOrder::in_turn(ranks, (chunk % ranks + ahead) % ranks);
}

} // namespace qccl
