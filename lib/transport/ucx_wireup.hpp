// Connects two ends of the UCX network before the first message. Used by the UCX module, by one
// thread at a time; does not block.
//
// Before its first active message, UCX asks the peer for the id of the peer's endpoint, and UCX
// 1.13 answers over a connection that it has yet to make. If the asking process is gone before that
// connection is made, an assertion ends the answering process. (Later versions have no such
// assertion; Debian builds with assertions.) So both ends make their connections before UCX asks
// for anything: each end sends its wireup message to the other with a tagged message, for which UCX
// asks for nothing. Then the end with the lower number alone makes UCX ask, by a confirmation (an
// active message), while nothing else is under way. With that both ends have settled.
#pragma once

#include "transport/ucx_end.hpp"

namespace qccl {

// Makes the connection to a peer and sends the wireup message; once for each peer. A peer to
// which no wireup message can be sent is lost.
void send_wireup(NetworkEnd::Peer &peer);

// Receives wireup messages and confirmations from now on; once for each end. Returns UCX's status.
ucs_status_t hear_wireups(NetworkEnd &end);

// Answers the wireup messages that have come. The caller calls this after each progress of UCX.
void answer_wireups(NetworkEnd &end);

} // namespace qccl
