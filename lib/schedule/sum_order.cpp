#include "schedule/sum_order.hpp"

#include <algorithm>

namespace qccl {

SumOrder SumOrder::in_turn(uint32_t ranks, uint32_t first) {
    SumOrder order(ranks);
    order.first_ = first;
    return order;
}

SumOrder SumOrder::by_tree(std::span<const uint32_t> parents) {
    const auto ranks = static_cast<uint32_t>(parents.size());
    SumOrder order(ranks);
    order.places_.resize(ranks);
    order.begins_.resize(ranks);
    order.ends_.resize(ranks);

    // Children by parent, in increasing rank.
    std::vector<uint32_t> first(ranks + 1), children(ranks);
    uint32_t root = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        if (parents[rank] == rank)
            root = rank;
        else
            first[parents[rank] + 1]++;
    }
    for (uint32_t rank = 0; rank < ranks; rank++) first[rank + 1] += first[rank];
    std::vector<uint32_t> next(first.begin(), first.end() - 1);
    for (uint32_t rank = 0; rank < ranks; rank++)
        if (parents[rank] != rank) children[next[parents[rank]]++] = rank;

    // Own value first: a walk that visits parents before children. A subtree ends where the walk
    // leaves it.
    struct Visit {
        uint32_t rank;
        uint32_t next_child;
    };
    std::vector<Visit> path;
    uint32_t place = 0;
    const auto enter = [&](uint32_t rank, uint32_t sum_begin) {
        order.places_[rank] = place;
        order.begins_[place] = sum_begin;
        place++;
        path.push_back({rank, first[rank]});
    };
    enter(root, 0);
    while (!path.empty()) {
        Visit &visit = path.back();
        const uint32_t own = order.places_[visit.rank];
        if (visit.next_child < first[visit.rank + 1]) {
            enter(children[visit.next_child++], own);
        } else {
            order.ends_[own] = place;
            path.pop_back();
        }
    }
    return order;
}

SumOrder by_rank(Collective, uint32_t ranks, uint32_t) { return SumOrder::in_turn(ranks); }

SumOrder by_ring(Collective collective, uint32_t ranks, uint32_t chunk) {
    // A reduce-scatter's chunk has to end at its owner.
    const uint32_t ahead = collective == Collective::reduce_scatter ? 1 : 0;
    return SumOrder::in_turn(ranks, (chunk % ranks + ahead) % ranks);
}

} // namespace qccl
