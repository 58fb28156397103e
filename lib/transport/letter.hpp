// What ranks of different hosts tell each other: the head of every message that the network moves.
// Knows no network.
#pragma once

#include "base/batch_limits.hpp"
#include "transport/network_module.hpp"
#include "transport/transport.hpp"

namespace qccl {

enum class LetterKind : uint32_t {
    mail,     // bytes: an encoded chunk
    line,     // bytes: what the sender has published
    news,     // nothing but where the sender is
    question, // asks for news, of call `about` where that has begun
    verdict,  // bytes: the Error that the communicator has failed with
    warned,   // somebody has told a person that call `about` waits
    left,     // the sender takes part in no further call
    notice,   // bytes: number `tag.instance` of what the sender says beside its calls
    batch,    // bytes: encoded chunks of one call, each behind its BatchEntry
};

// Travels as bytes, between libraries of one protocol version.
struct Letter {
    uint64_t session = 0; // of the communicator: what others may send to its ports is thrown away
    LetterKind kind = LetterKind::news;
    uint32_t from = 0;
    // As the sender's Presence has them.
    uint64_t ended = 0;
    uint32_t waits_on = 0;
    uint32_t ignores_failure = 0;
    // A call that the sender has begun: the one that somebody asked about, else its latest. Nobody
    // is told of a begun call without what it is. Number 0: nothing is said.
    CallDescriptor call{};
    uint64_t hash = 0; // mail, batches and lines: of `call`
    uint64_t about = 0;
    uint64_t taken = 0;    // bytes of mail that the sender has had from the addressee and used up
    MessageTag tag{};      // mail, notice
    uint64_t exchange = 0; // line; which of the sender's notices of that number it is
};
static_assert(sizeof(Letter) == 184 && sizeof(Letter) <= most_network_head_bytes);

// Before each chunk of a batch.
struct BatchEntry {
    MessageTag tag;
    uint64_t bytes = 0;
};
static_assert(sizeof(BatchEntry) == batch_entry_bytes);
// A batch comes by itself, so that it can be taken apart at once.
static_assert(most_batch_bytes <= least_eager_bytes);

} // namespace qccl
