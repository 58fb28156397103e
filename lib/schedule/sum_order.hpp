// In which order the contributions of all ranks to one chunk are summed, brackets and all. A value
// that algorithms describe and verify checks; knows no steps.
#pragma once

#include "base/types.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace qccl {

// A sum from the left, whose operands are contributions or sums of their own. Contributions are
// numbered by their place in it, read from left to right.
class SumOrder {
public:
    // A contribution, or the sum of the operands.
    struct Term {
        uint32_t rank = 0; // without operands: whose contribution
        std::vector<Term> operands = {};
    };

    // `first`, first + 1, ..., once round, without brackets.
    static SumOrder in_turn(uint32_t ranks, uint32_t first = 0);
    // Likewise by the positions of a ring, of which `ring` has the ranks.
    static SumOrder in_turn(std::span<const uint32_t> ring, uint32_t first);
    // A rank's own contribution, then what its children sum, in increasing rank; the root is its
    // own parent.
    static SumOrder by_tree(std::span<const uint32_t> parents);
    // With every rank once.
    static SumOrder of(const Term &sum, uint32_t ranks);
    // As by_tree, where members[i] takes the place of rank i's contribution.
    static Term of_tree(std::span<const uint32_t> parents, std::vector<Term> members);

    uint32_t place(uint32_t rank) const {
        return places_.empty() ? (rank + ranks_ - first_) % ranks_ : places_[rank];
    }
    // The only operand that may be added and starts at the place (not the first one) ends before
    // this place, ...
    uint32_t operand_end(uint32_t place) const { return ends_.empty() ? place + 1 : ends_[place]; }
    // ... and the sum that it is added to starts here.
    uint32_t sum_begin(uint32_t place) const { return begins_.empty() ? 0 : begins_[place]; }

private:
    explicit SumOrder(uint32_t ranks) : ranks_(ranks) {}
    void lay(const Term &term, uint32_t &next);

    uint32_t ranks_;
    uint32_t first_ = 0;
    std::vector<uint32_t> places_;        // by rank; empty: in turn from first_ on
    std::vector<uint32_t> begins_, ends_; // by place; empty: without brackets
};

// How the contributions to a chunk are summed in a team.
using OrderOf = std::function<SumOrder(Collective collective, uint32_t ranks, uint32_t chunk)>;

// 0, 1, ..., P - 1.
SumOrder by_rank(Collective collective, uint32_t ranks, uint32_t chunk);
// From the rank where the chunk starts on its way round to the one where it ends.
SumOrder by_ring(Collective collective, uint32_t ranks, uint32_t chunk);

} // namespace qccl
