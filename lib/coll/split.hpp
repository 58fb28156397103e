// A range of positions in two halves whose members exchange what they have: what halving and
// doubling are made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace qccl {

// The positions [begin, end), of which the lower half may be larger by one.
struct Split {
    uint32_t begin, middle, end;

    static Split of(uint32_t begin, uint32_t end) {
        return {begin, begin + (end - begin + 1) / 2, end};
    }
    bool is_lower(uint32_t at) const { return at < middle; }
    // The half that the position is in, and the other one.
    Split half(uint32_t at) const { return is_lower(at) ? of(begin, middle) : of(middle, end); }
    Split other(uint32_t at) const { return is_lower(at) ? of(middle, end) : of(begin, middle); }
    uint32_t size() const { return end - begin; }

    // One too many in the lower half shares its neighbour's partner.
    uint32_t partner(uint32_t at) const {
        return is_lower(at) ? std::min(middle + (at - begin), end - 1) : begin + (at - middle);
    }
    // Of whom the position is the partner, in increasing order.
    std::vector<uint32_t> partners_of(uint32_t at) const {
        const Split theirs = other(at);
        std::vector<uint32_t> found;
        for (uint32_t peer = theirs.begin; peer < theirs.end; peer++)
            if (partner(peer) == at) found.push_back(peer);
        return found;
    }
};

// From all `size` positions down to this one and one other.
inline std::vector<Split> splits_of(uint32_t size, uint32_t at) {
    std::vector<Split> splits;
    for (Split split = Split::of(0, size); split.size() > 1; split = split.half(at))
        splits.push_back(split);
    return splits;
}

} // namespace qccl
