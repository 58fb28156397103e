// What the ranks of a host together still need of its memory for one large call. Each rank alone
// would find room, and all of them together, which ask in the same instant, would not. Used by the
// thread that runs a rank's calls; does not block.
#pragma once

#include "base/result.hpp"
#include "transport/party.hpp"

#include <cstdint>
#include <functional>

namespace qccl {

// That the options give, or the kernel.
std::function<size_t()> free_memory_of(const TransportOptions &options);

// One rank's claim, which ends with the object. The other ranks of the host see it.
class MemoryClaim {
public:
    // `free_bytes` says what the host has left. Both outlive the claim.
    MemoryClaim(const Party &party, const std::function<size_t()> &free_bytes)
        : party_(party), free_bytes_(free_bytes) {}
    MemoryClaim(const MemoryClaim &) = delete;
    ~MemoryClaim() { publish(0); }

    // This rank has yet to get so many bytes. A rank says so before it gets the first of them and
    // again as they become fewer. Compares what all ranks need with what is free, now and then;
    // system_error names both: the caller gives back what it has got.
    Done still_needs(uint64_t bytes);

private:
    void publish(uint64_t bytes) const;
    uint64_t needed_by_all() const;

    const Party &party_;
    const std::function<size_t()> &free_bytes_;
    uint64_t needed_ = 0;             // at first
    uint64_t look_at_ = ~uint64_t{0}; // the next look comes when no more than this is needed
};

} // namespace qccl
