// The header of every message between ranks of different hosts. RemoteEndpoint writes and reads it.
#pragma once

#include "base/batch_limits.hpp"
#include "transport/network_module.hpp"
#include "transport/transport.hpp"

namespace qccl {

enum class MessageKind : uint32_t {
    data,           // bytes: an encoded chunk
    eager,          // bytes: the contents of the sender's eager slot
    status,         // no bytes: the header alone says where the sender is
    status_request, // asks for a status that tells of call `about` once that has begun
    abort,          // bytes: the Error that the communicator has failed with
    warned,         // a rank has warned its user that call `about` waits
    goodbye,        // the sender takes part in no further call
    record,         // bytes: seqlock record number `tag.instance` of the sender
    batch,          // bytes: encoded chunks of one call, each behind its BatchEntry
};

// Sent as plain bytes, between libraries of one protocol version.
struct MessageHeader {
    uint64_t session = 0; // of the communicator; messages with another session are dropped
    MessageKind kind = MessageKind::status;
    uint32_t from = 0;
    // Copies of the fields of the sender's RankStatus.
    uint64_t ended = 0;
    uint32_t waits_on = 0;
    uint32_t ignores_failure = 0;
    // A call that the sender has begun: the call that the receiver asked about, else the sender's
    // latest call. A rank never tells that it has begun a call without this descriptor. Number 0:
    // the header tells of no call.
    CallDescriptor call{};
    uint64_t hash = 0;        // data, batch and eager: of `call`
    uint64_t about = 0;       // status_request and warned: a call number
    uint64_t acked_bytes = 0; // bytes of data from the addressee that the sender has consumed
    MessageTag tag{};         // data and record
    uint64_t exchange = 0;    // eager: number of the exchange; record: its version
};
static_assert(sizeof(MessageHeader) == 184 && sizeof(MessageHeader) <= most_network_head_bytes);

// Precedes each chunk in a batch.
struct BatchEntry {
    MessageTag tag;
    uint64_t bytes = 0;
};
static_assert(sizeof(BatchEntry) == batch_entry_bytes);
// A batch is always sent eagerly, so that the receiver can take it apart at once.
static_assert(most_batch_bytes <= always_eager_bytes);

} // namespace qccl
