// Checks that the ranks of a host together find the shared memory that they need for one large
// call. They allocate at the same instant, so that each rank alone would see enough free memory,
// and all of them together would not get it. Used by the thread that runs a rank's calls; does not
// block.
#pragma once

#include "base/result.hpp"
#include "transport/peer_table.hpp"

#include <cstdint>
#include <functional>

namespace qccl {

// Returns the function that reports the host's free memory in bytes: the one from the options, or
// else the kernel's figure.
std::function<size_t()> free_memory_of(const TransportOptions &options);

// One rank's claim to memory, which ends with the object. The other ranks of the host see the
// claim.
class MemoryClaim {
public:
    // `free_bytes` returns the free memory of the host. Both arguments outlive the claim.
    MemoryClaim(const PeerTable &peer_table, const std::function<size_t()> &free_bytes)
        : peer_table_(peer_table), free_bytes_(free_bytes) {}
    MemoryClaim(const MemoryClaim &) = delete;
    ~MemoryClaim() { publish(0); }

    // States that this rank has yet to allocate `bytes`. A rank calls this before it allocates the
    // first of them, and again as fewer remain. Now and then this compares what all ranks of the
    // host need with what is free. If that is too little, it returns system_error with both
    // figures, and the caller frees what it has allocated.
    Done still_needs(uint64_t bytes);

private:
    void publish(uint64_t bytes) const;
    uint64_t needed_by_all() const;

    const PeerTable &peer_table_;
    const std::function<size_t()> &free_bytes_;
    uint64_t needed_ = 0;             // the most that was stated
    uint64_t look_at_ = ~uint64_t{0}; // compares again when at most this many bytes remain
};

} // namespace qccl
