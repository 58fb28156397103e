// The order in which the contributions of all ranks to one chunk are summed, brackets included.
// Algorithms describe their order with it, and verify() checks it. Constant values; any thread.
#pragma once

#include "base/types.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace qccl {

// A sum from the left. Its operands are contributions, or sums of their own. The place of a
// contribution is its number in the sum, read from left to right.
class SumOrder {
public:
    // A contribution, or a sum of operands.
    struct Term {
        uint32_t rank = 0; // without operands: the contributing rank
        std::vector<Term> operands = {};
    };

    // `first`, first + 1, ..., once round, without brackets.
    static SumOrder in_turn(uint32_t ranks, uint32_t first = 0);
    // The same along a ring, from position `first`; `ring` has the ranks by position.
    static SumOrder in_turn(std::span<const uint32_t> ring, uint32_t first);
    // A rank adds what its children sum, in increasing rank, to its own contribution. The root is
    // its own parent. `parents`: by rank.
    static SumOrder by_tree(std::span<const uint32_t> parents);
    // `sum` must contain every rank once.
    static SumOrder of(const Term &sum, uint32_t ranks);
    // The sum that by_tree describes, with members[i] in place of rank i's contribution.
    static Term of_tree(std::span<const uint32_t> parents, std::vector<Term> members);

    // The place of the rank's contribution.
    uint32_t place(uint32_t rank) const {
        return places_.empty() ? (rank + ranks_ - first_) % ranks_ : places_[rank];
    }
    // For a place other than the first: exactly one operand that starts there may be added to a
    // sum. Returns the place behind that operand.
    uint32_t operand_end(uint32_t place) const { return ends_.empty() ? place + 1 : ends_[place]; }
    // Returns the place at which that sum starts.
    uint32_t sum_begin(uint32_t place) const { return begins_.empty() ? 0 : begins_[place]; }

private:
    explicit SumOrder(uint32_t ranks) : ranks_(ranks) {}
    void lay(const Term &term, uint32_t &next);

    uint32_t ranks_;
    uint32_t first_ = 0;
    std::vector<uint32_t> places_;        // by rank; empty: in order from first_ on
    std::vector<uint32_t> begins_, ends_; // by place; empty: without brackets
};

// Returns how a team sums the contributions to a chunk.
using OrderOf = std::function<SumOrder(Collective collective, uint32_t ranks, uint32_t chunk)>;

// The order 0, 1, ..., P - 1.
SumOrder by_rank(Collective collective, uint32_t ranks, uint32_t chunk);
// The order in which a chunk passes the ranks of a ring, from its first rank to its last.
SumOrder by_ring(Collective collective, uint32_t ranks, uint32_t chunk);

} // namespace qccl
