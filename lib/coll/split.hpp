// Splits a range of positions into two halves whose members exchange data. Used by halving and
// doubling. Pure; any thread may call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace qccl {

// The positions [begin, end); the lower half may be larger by one.
struct Split {
    uint32_t begin, middle, end;

    static Split of(uint32_t begin, uint32_t end) {
        return {begin, begin + (end - begin + 1) / 2, end};
    }
    bool is_lower(uint32_t at) const { return at < middle; }
    // Returns the half that contains the position, and the other half.
    Split half(uint32_t at) const { return is_lower(at) ? of(begin, middle) : of(middle, end); }
    Split other(uint32_t at) const { return is_lower(at) ? of(middle, end) : of(begin, middle); }
    uint32_t size() const { return end - begin; }

    // The extra position of a larger lower half has the same partner as its neighbour.
    uint32_t partner(uint32_t at) const {
        return is_lower(at) ? std::min(middle + (at - begin), end - 1) : begin + (at - middle);
    }
    // Returns the positions whose partner is `at`, in increasing order.
    std::vector<uint32_t> partners_of(uint32_t at) const {
        const Split theirs = other(at);
        std::vector<uint32_t> found;
        for (uint32_t peer = theirs.begin; peer < theirs.end; peer++)
            if (partner(peer) == at) found.push_back(peer);
        return found;
    }
};

// Returns the splits that contain `at`, from all `size` positions down to the smallest one.
inline std::vector<Split> splits_of(uint32_t size, uint32_t at) {
    std::vector<Split> splits;
    for (Split split = Split::of(0, size); split.size() > 1; split = split.half(at))
        splits.push_back(split);
    return splits;
}

} // namespace qccl
