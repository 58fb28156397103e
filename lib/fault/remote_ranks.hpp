// What the detection of failures and the exchanges of survivors ask of the ranks of other hosts;
// the transport implements it (transport/remote_endpoint.hpp). Any thread may call. Only
// `flush_records` waits, for a second at most.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

class RemoteRanks {
public:
    // Handles what has arrived and what has been sent. Returns false if nothing has.
    virtual bool progress() = 0;
    // Call this before a sleep on `descriptor`. Returns false if something has come.
    virtual bool arm() = 0;
    virtual int descriptor() const = 0;

    virtual bool is_lost(uint32_t peer) const = 0;
    // Whether the peer has sent a message of the current call that this rank has asked for but not
    // received yet. A message that this rank has not asked for says nothing about what it waits
    // for.
    virtual bool has_matched_data_from(uint32_t peer) const = 0;

    // Asks every remote rank, or one, for the descriptor of a call. A rank that has not begun the
    // call answers again when it begins it. The request carries this rank's descriptor of the call
    // if this rank has begun it.
    virtual void request_status_of_all(uint64_t call) = 0;
    virtual void request_status(uint32_t peer, uint64_t call) = 0;
    // Tells every remote rank that a rank has warned its user of this call's wait.
    virtual void broadcast_warning(uint64_t call) = 0;
    // Sends a record of this rank to these ranks.
    virtual void send_record(uint32_t number, uint64_t version, std::span<const std::byte> bytes,
                             std::span<const uint32_t> remote_ranks) = 0;
    // Waits a moment until this rank's records are under way: if this rank then did nothing more on
    // the network, it would keep others waiting for them.
    virtual void flush_records() = 0;

protected:
    ~RemoteRanks() = default;
};

} // namespace qccl
