// The ranks of one communicator as one of them sees them: everyone's segment, and how to wake whom.
#pragma once

#include "transport/doorbell.hpp"
#include "transport/segment.hpp"

#include <memory>
#include <vector>

namespace qccl {

struct Party {
    Party(uint32_t own_rank, Fences agreed, std::vector<int64_t> all_pids)
        : rank(own_rank), fences(agreed), pids(std::move(all_pids)) {}

    uint32_t rank;
    Fences fences;
    std::vector<int64_t> pids;                        // by rank
    std::vector<Segment> segments;                    // by rank
    std::vector<std::shared_ptr<const void>> keepers; // of the segments' memory

    uint32_t size() const { return static_cast<uint32_t>(segments.size()); }
    const Segment &mine() const { return segments[rank]; }

    void wake(uint32_t peer) const { ring_sleeper(segments[peer].bell(), fences); }
    void wake_all() const {
        for (const Segment &segment : segments) ring(segment.bell());
    }
};

} // namespace qccl
