// The ranks of one communicator as one of them sees them: everyone's segment, and how to wake whom.
// Near ranks are those of the same host, whose segments are the same memory for all of them. Of a
// far rank the segment is this rank's own note of what it has been told.
#pragma once

#include "transport/doorbell.hpp"
#include "transport/overflow.hpp"
#include "transport/segment.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace qccl {

struct Party {
    Party(uint32_t own_rank, Fences agreed, std::vector<int64_t> all_pids)
        : rank(own_rank), fences(agreed), pids(std::move(all_pids)) {}

    uint32_t rank;
    Fences fences;
    std::vector<int64_t> pids;                              // by rank
    std::vector<Segment> segments;                          // by rank
    std::vector<std::shared_ptr<const void>> keepers;       // of the segments' memory
    std::vector<std::unique_ptr<OverflowMemory>> overflows; // by rank; null for far ones
    std::vector<uint32_t> near_ranks;                       // ascending, this one among them
    std::vector<uint32_t> far_ranks;                        // ascending
    uint64_t line_bytes = 0;
    // Where somebody is far, and whoever sleeps waits for the network too: this rank's bell, and by
    // rank the names of all.
    SocketBell bell;
    std::vector<SocketBell::Name> bells;

    uint32_t size() const { return static_cast<uint32_t>(segments.size()); }
    const Segment &mine() const { return segments[rank]; }
    bool is_near(uint32_t peer) const {
        return !has_far() || std::binary_search(near_ranks.begin(), near_ranks.end(), peer);
    }
    bool has_far() const { return !far_ranks.empty(); }
    // Where what the ranks of this host share lies.
    const Segment &first() const { return segments[near_ranks.front()]; }

    void wake(uint32_t peer) const {
        if (is_sleeper(segments[peer].bell(), fences)) [[unlikely]]
            ring(peer);
    }
    void wake_all() const {
        for (const uint32_t peer : near_ranks) ring(peer);
    }

private:
    void ring(uint32_t peer) const {
        qccl::ring(segments[peer].bell());
        if (bell.is_open()) bell.ring(bells[peer]);
    }
};

} // namespace qccl
