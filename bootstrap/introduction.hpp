// A rank's first words with the server: connect, check that it holds the secret, prove the same.
#pragma once

#include "bootstrap/arrival.hpp"
#include "bootstrap/channel.hpp"
#include "bootstrap/frame.hpp"

namespace qccl {

struct Introduced {
    Channel channel;
    Session session;
};

// Nothing: the server hung up before it knew us, as it does to the oldest when crowds come. That
// the proof has been sent does not say yet that it was accepted. Code::peer_lost: nobody is there,
// or somebody who does not hold the secret.
Result<std::optional<Introduced>> introduce(const Endpoint &endpoint, const Secret &secret,
                                            const Claim &claim, Arrival &arrival);

// Sleeps until the channel has something to read, or room for what is queued, or the deadline.
void wait_until(const Channel &channel, TimePoint deadline);

} // namespace qccl
