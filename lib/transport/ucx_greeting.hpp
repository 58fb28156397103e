// How two ends come to know each other before the first message goes. Knows no messages.
//
// Before its first active message UCX asks the other end for that end's number, and UCX 1.13
// answers over a connection that it has yet to make; where the asker is gone before that stands, an
// assertion ends the process of the one that answers (left out of later versions; Debian builds
// with assertions). So the connections of both ends are made before anything is asked: each end
// greets the other by a tagged message, for which nothing is asked; then the end of the lower
// number alone asks, by a pact, while nothing else is under way. With that they have settled.
#pragma once

#include "transport/ucx_end.hpp"

namespace qccl {

// Once for each peer: makes the connection, and greets. A peer that cannot be greeted is lost.
void greet(NetworkEnd::Peer &peer);

// Once for each end: from here on greetings and pacts are heard.
ucs_status_t hear_greetings(NetworkEnd &end);

// To be called after each progress of UCX: answers the greetings that have come.
void answer_greetings(NetworkEnd &end);

} // namespace qccl
