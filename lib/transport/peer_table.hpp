// The ranks of one communicator as one rank sees them: every rank's segment, and how to wake each
// rank. Local ranks are on the same host, and all of them map the same segments. The segment of a
// remote rank is this rank's own note of what the remote rank has told it. Filled while the
// transport is created, and used by all of its parts. Any thread may wake ranks; nothing here
// blocks.
#pragma once

#include "transport/doorbell.hpp"
#include "transport/overflow.hpp"
#include "transport/segment.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace qccl {

struct PeerTable {
    PeerTable(uint32_t own_rank, Fences agreed, std::vector<int64_t> all_pids)
        : rank(own_rank), fences(agreed), pids(std::move(all_pids)) {}

    uint32_t rank;
    Fences fences;
    std::vector<int64_t> pids;                              // by rank
    std::vector<Segment> segments;                          // by rank
    std::vector<std::shared_ptr<const void>> keepers;       // keep the segments' memory
    std::vector<std::unique_ptr<OverflowMemory>> overflows; // by rank; null for remote ranks
    std::vector<uint32_t> local_ranks;                      // ascending, with this rank
    std::vector<uint32_t> remote_ranks;                     // ascending
    uint64_t eager_slot_bytes = 0;
    // Set only if there are remote ranks, since a sleeping rank then waits for the network too:
    // this rank's socket bell, and the names of all ranks' socket bells, by rank.
    SocketBell bell;
    std::vector<SocketBell::Name> bells;

    uint32_t size() const { return static_cast<uint32_t>(segments.size()); }
    const Segment &mine() const { return segments[rank]; }
    bool is_local(uint32_t peer) const {
        return !has_remote() || std::binary_search(local_ranks.begin(), local_ranks.end(), peer);
    }
    bool has_remote() const { return !remote_ranks.empty(); }
    // The segment of the host's lowest rank, which holds what the host's ranks share.
    const Segment &first() const { return segments[local_ranks.front()]; }

    // Wakes the peer if it sleeps or is about to sleep.
    void wake(uint32_t peer) const {
        if (is_sleeper(segments[peer].bell(), fences)) [[unlikely]]
            ring(peer);
    }
    void wake_all() const {
        for (const uint32_t peer : local_ranks) ring(peer);
    }

private:
    void ring(uint32_t peer) const {
        qccl::ring(segments[peer].bell());
        if (bell.is_open()) bell.ring(bells[peer]);
    }
};

} // namespace qccl
