// Sums that go up a tree of ranks, for the slow twins. Written from lib/codec/WIRE.md, not from the
// schedules.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace qtest {

// How one chunk is summed: by rank, the parent that receives the rank's sum, and the ordinal of
// that encode.
struct SumTree {
    uint32_t root = 0;
    uint32_t final_ordinal = 0; // of the root's encode of the result
    std::vector<uint32_t> parent, ordinal;
};

// Halves are given by their first rank and their number of ranks.
inline SumTree halving_tree(uint32_t ranks, uint32_t chunk) {
    SumTree tree{.root = chunk, .final_ordinal = ranks - 1, .parent = {}, .ordinal = {}};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint32_t first = 0, size = ranks, given = 0, parent = rank, ordinal = 0;
        while (size > 1 && parent == rank && rank != chunk) {
            const uint32_t upper = size / 2, lower = size - upper, middle = first + lower;
            const bool is_low = rank < middle, is_chunk_low = chunk < middle;
            if (is_low != is_chunk_low) {
                const uint32_t place = is_low ? rank - first : rank - middle;
                parent = is_low ? middle + (place < upper ? place : upper - 1) : first + place;
                ordinal = given + chunk - (is_low ? middle : first);
            }
            given += is_low ? upper : lower;
            if (!is_low) first = middle;
            size = is_low ? lower : upper;
        }
        tree.parent.push_back(parent);
        tree.ordinal.push_back(ordinal);
    }
    return tree;
}

inline SumTree binomial_tree(uint32_t ranks) {
    SumTree tree{.parent = {}, .ordinal = std::vector<uint32_t>(ranks)};
    for (uint32_t rank = 0; rank < ranks; rank++) {
        uint32_t stride = 1; // the largest power of two that divides the rank
        while (rank != 0 && rank % (2 * stride) == 0) stride *= 2;
        tree.parent.push_back(rank == 0 ? 0 : rank - stride);
    }
    return tree;
}

// Returns the place of the rank in the second tree. In the first tree the place is the rank itself.
inline uint32_t number_in_second(uint32_t ranks, uint32_t rank) {
    if (rank == 0) return 0;
    if (ranks % 2 != 0) return ranks - rank;
    return rank + 1 < ranks ? rank + 1 : 1;
}

inline std::vector<uint32_t> double_parents(uint32_t ranks, uint32_t chunk) {
    std::vector<uint32_t> rank_of(ranks), parents(ranks);
    for (uint32_t rank = 0; rank < ranks; rank++)
        rank_of[chunk == 0 ? rank : number_in_second(ranks, rank)] = rank;
    for (uint32_t v = 1; v < ranks; v++) {
        uint32_t stride = 1;
        while (v % (2 * stride) == 0) stride *= 2;
        const uint32_t below = v - stride, above = v + stride;
        // The parent is the one of the two that is an odd multiple of twice the stride, if it
        // exists.
        const bool is_above = (below / (2 * stride)) % 2 == 0 && above < ranks;
        parents[rank_of[v]] = rank_of[is_above ? above : below];
    }
    return parents;
}

inline SumTree double_tree(uint32_t ranks, uint32_t chunk) {
    SumTree tree{.final_ordinal = chunk, .parent = double_parents(ranks, chunk), .ordinal = {}};
    const auto other = double_parents(ranks, 1 - chunk);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        bool is_leaf = true, is_other_leaf = true;
        for (uint32_t child = 1; child < ranks; child++) {
            is_leaf = is_leaf && tree.parent[child] != rank;
            is_other_leaf = is_other_leaf && other[child] != rank;
        }
        tree.ordinal.push_back(is_leaf == is_other_leaf ? chunk : is_leaf ? 0 : 1);
    }
    return tree;
}

inline bool sums_by_tree(std::string_view algorithm) {
    return algorithm == "halving" || algorithm.starts_with("tree");
}

inline SumTree sum_tree(std::string_view algorithm, uint32_t ranks, uint32_t chunk) {
    if (algorithm == "halving") return halving_tree(ranks, chunk);
    return algorithm == "tree" ? binomial_tree(ranks) : double_tree(ranks, chunk);
}

// Converts a tree of positions in a ring to a tree of ranks; `ring` has the rank of each position.
inline SumTree placed(const SumTree &by_position, const std::vector<uint32_t> &ring) {
    SumTree tree = by_position;
    tree.root = ring[by_position.root];
    for (uint32_t at = 0; at < ring.size(); at++) {
        tree.parent[ring[at]] = ring[by_position.parent[at]];
        tree.ordinal[ring[at]] = by_position.ordinal[at];
    }
    return tree;
}

// Appends those below `at`, each before those below itself, siblings in increasing number.
inline void add_below(const SumTree &tree, uint32_t at, std::vector<uint32_t> &numbers) {
    for (uint32_t child = 1; child < tree.parent.size(); child++) {
        if (tree.parent[child] != at) continue;
        numbers.push_back(child);
        add_below(tree, child, numbers);
    }
}

// Returns the ranks but the root in the order in which the root of a scatter by trees encodes their
// parts. `ring` has the rank of each position, from the root on.
inline std::vector<uint32_t> scatter_order(std::string_view algorithm,
                                           const std::vector<uint32_t> &ring) {
    const uint32_t trees = algorithm == "tree" ? 1 : 2;
    std::vector<uint32_t> order;
    for (uint32_t tree = 0; tree < trees; tree++) {
        std::vector<uint32_t> numbers;
        add_below(sum_tree(algorithm, static_cast<uint32_t>(ring.size()), tree), 0, numbers);
        for (const uint32_t number : numbers)
            if (ring[number] % trees == tree) order.push_back(ring[number]);
    }
    return {order.rbegin(), order.rend()};
}

// Returns how many parts a rank of an all-to-all sends before that for the rank `way` ranks behind.
inline uint32_t part_ordinal(std::string_view algorithm, uint32_t ranks, uint32_t way) {
    const uint32_t back = ranks - way;
    if (algorithm == "pairwise") return way <= back ? 2 * way - 2 : 2 * back - 1;
    if (algorithm != "bruck") return way - 1;
    const auto round = [](uint32_t of) { return of & (~of + 1); };
    uint32_t before = 0;
    for (uint32_t other = 1; other < ranks; other++)
        before += round(other) < round(way) || (round(other) == round(way) && other < way);
    return before;
}

// Calls add(rank) for the rank's own value, and add_sum(child) for what each child's encoded sum
// decodes to.
template <class Add, class AddSum>
void each_operand(const SumTree &tree, uint32_t rank, Add add, AddSum add_sum) {
    add(rank);
    for (uint32_t child = 0; child < tree.parent.size(); child++)
        if (child != tree.root && tree.parent[child] == rank) add_sum(child);
}

} // namespace qtest
