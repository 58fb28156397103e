// The one failure of a communicator: the first error that any rank records holds for all ranks.
// Used by all parts of the transport. Any thread may call; nothing waits for other ranks.
#pragma once

#include "transport/peer_table.hpp"

#include <mutex>

namespace qccl {

// Checks a failure that rank `from` of another host has sent, in a communicator of `size` ranks.
// Returns the failure with unprintable characters replaced, or remote_error at rank `from` if the
// failure is malformed.
Error sanitize_remote(Error told, uint32_t from, uint32_t size);

class SharedError {
public:
    explicit SharedError(const PeerTable &peer_table) : peer_table_(peer_table) {}

    bool is_set() const { return line().recorded_by.load(std::memory_order_acquire) != 0; }
    std::optional<Error> failure() const;
    // Records the error unless one is already set, and wakes all ranks of this host. Returns the
    // recorded error. Any thread.
    Error set_once(const Error &error);
    // Returns true to one rank of this host only, the one that reports the failure.
    bool claim_report() const { return line().is_told.exchange(1, std::memory_order_relaxed) == 0; }

private:
    SharedErrorLine &line() const { return peer_table_.first().shared_error(); }

    const PeerTable &peer_table_;
    std::mutex one_writer_; // for this rank's record, which one thread at a time writes
};

} // namespace qccl
