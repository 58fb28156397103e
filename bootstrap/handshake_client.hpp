// A rank's handshake with the rendezvous server: connect, check that the server holds the secret,
// prove the same. The rendezvous client uses it. Its calls block, at most until the attempt's
// deadline.
#pragma once

#include "bootstrap/join_attempt.hpp"
#include "bootstrap/channel.hpp"
#include "bootstrap/frame.hpp"

namespace qccl {

struct AuthenticatedChannel {
    Channel channel;
    Session session;
};

// Connects to `endpoint` and performs the handshake. Returns nothing if the server hung up before
// it had checked the rank, as it does to the oldest connection when very many arrive. Success does
// not mean yet that the server has accepted the proof. Errors: peer_lost if no process listens
// there or if the listener does not hold the secret, timeout, invalid_argument if the server has
// another version.
Result<std::optional<AuthenticatedChannel>>
introduce(const Endpoint &endpoint, const Secret &secret, const Claim &claim, JoinAttempt &attempt);

// Sleeps until the channel is readable, can send what is queued, or the deadline has passed.
void wait_until(const Channel &channel, TimePoint deadline);

} // namespace qccl
