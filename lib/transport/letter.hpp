// What ranks of different hosts tell each other: the head of every message that the network moves.
// Knows no network.
#pragma once

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
};

// Travels as bytes, between libraries of one protocol version.
struct Letter {
    uint64_t session = 0; // of the communicator: what others may send to its ports is thrown away
    LetterKind kind = LetterKind::news;
    uint32_t from = 0;
    // Where the sender is, as its Presence has it.
    uint64_t begun = 0, ended = 0;
    uint32_t waits_on = 0;
    uint32_t zero = 0;
    // Mail and lines: the sender's call, and its hash. News: a call that somebody asked about.
    CallDescriptor call{};
    uint64_t hash = 0;
    uint64_t about = 0;
    MessageTag tag{};      // mail
    uint64_t exchange = 0; // line
};
static_assert(sizeof(Letter) == 168 && sizeof(Letter) <= most_network_head_bytes);

} // namespace qccl
