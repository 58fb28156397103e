// Publishes this rank's claim and adds up the claims of the host's ranks.
#include "transport/memory_claim.hpp"

#include <algorithm>

namespace qccl {

// Bytes between two comparisons: often enough to notice that other programs take memory, and rare
// beside the work of clearing the memory.
static constexpr uint64_t between_looks = uint64_t{64} << 20;

std::function<size_t()> free_memory_of(const TransportOptions &options) {
    return options.free_memory ? options.free_memory : free_memory_bytes;
}

void MemoryClaim::publish(uint64_t bytes) const {
    // This store comes before this rank's loads of the other claims: of two ranks at least one sees
    // both claims.
    peer_table_.mine().status().overflow_needed.store(bytes, std::memory_order_seq_cst);
}

uint64_t MemoryClaim::needed_by_all() const {
    uint64_t sum = 0;
    for (const uint32_t near : peer_table_.local_ranks) {
        const uint64_t needed =
            peer_table_.segments[near].status().overflow_needed.load(std::memory_order_seq_cst);
        sum += std::min(needed, most_outbox_bytes); // so that the sum does not wrap
    }
    return sum;
}

Done MemoryClaim::still_needs(uint64_t bytes) {
    publish(bytes);
    if (bytes > look_at_) return {};
    needed_ = std::max(needed_, bytes);
    look_at_ = bytes - std::min(bytes, between_looks);
    const uint64_t free = free_bytes_(), all = needed_by_all();
    if (all <= free) return {};
    static constexpr double mib = 1 << 20;
    return Error::make(Code::system_error,
                       "cannot get %.1f MiB of shared memory for this call: the ranks of this host "
                       "need %.1f MiB together, and only %.1f MiB are free",
                       static_cast<double>(needed_) / mib, static_cast<double>(all) / mib,
                       static_cast<double>(free) / mib);
}

} // namespace qccl
