// Numbers the contributions of a sum from left to right, and keeps where each operand and its sum
// begin and end.
#include "schedule/sum_order.hpp"

#include <utility>

namespace qccl {

namespace {

using Term = SumOrder::Term;

struct Tree {
    std::vector<std::vector<uint32_t>> children; // ascending
    uint32_t root = 0;

    explicit Tree(std::span<const uint32_t> parents) : children(parents.size()) {
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
    const Tree tree(parents);
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
