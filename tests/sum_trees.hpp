// Sums that go up a tree of ranks, as the documents describe them, for the slow twins: written from
// lib/codec/WIRE.md, not from the schedules.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace qtest {

// How one chunk is summed: who gives a rank's sum to whom, and as its how manieth encode.
struct SumTree {
    uint32_t root = 0;
    uint32_t final_ordinal = 0; // of the root's encode of the result
    std::vector<uint32_t> parent, ordinal;
};

// A half is given by where it begins and how many ranks it has.
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

inline bool sums_by_tree(std::string_view algorithm) { return algorithm == "halving"; }

inline SumTree sum_tree(std::string_view, uint32_t ranks, uint32_t chunk) {
    return halving_tree(ranks, chunk);
}

// add(rank) adds a rank's own value, add_sum(child) what the child's encoded sum decodes to.
template <class Add, class AddSum>
void each_operand(const SumTree &tree, uint32_t rank, Add add, AddSum add_sum) {
    add(rank);
    for (uint32_t child = 0; child < tree.parent.size(); child++)
        if (child != tree.root && tree.parent[child] == rank) add_sum(child);
}

} // namespace qtest
