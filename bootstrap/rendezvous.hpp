// Both ends of a rendezvous whose endpoints and secret are known: open its listeners and serve it,
// or join it. The unique-id and environment bootstraps use it. Joining blocks; serving runs on a
// thread of its own.
#pragma once

#include "bootstrap/channel.hpp"
#include "bootstrap/unique_id.hpp"

namespace qccl {

// What the server does once all ranks are there. `tell`: as long as any rank is there, it tells a
// late rank that all are there. `make_room`: it does so for the linger time only, and leaves the
// port to a rank that asks for it for the next rendezvous. Ranks of this rendezvous that come early
// for the next one have to try again.
enum class Afterwards : uint8_t { tell, make_room };

// Listens at the same port on all endpoints: that of the first, or if it is 0 any free port, which
// is then written into all. Removes endpoints that turn out not to be this machine's, as long as
// others remain. Returns system_error if it cannot listen.
Result<std::vector<Socket>> open_listeners(std::vector<Endpoint> &endpoints);

// Serves a rendezvous on a background thread of this process. With make_room that thread calls
// options.warn about a process with another secret, at most once and only before all ranks are
// there.
Done serve_rendezvous(std::vector<Socket> listeners, const Secret &secret,
                      const RendezvousOptions &options, Afterwards afterwards);

// Asks the process that listens where rank 0 wants to listen to leave the port, which that process
// does if its rendezvous is finished. Returns remote_error if that process serves the same
// rendezvous and so is rank 0, too; then both processes know it. Success only means that another
// try is worthwhile.
Done ask_for_room(const IdFields &fields, uint32_t size, const RendezvousOptions &options);

// Whether the server is already there (none), or may start later than this rank (until_timeout).
enum class Patience : uint8_t { none, until_timeout };

// Tries the endpoints in turn, and blocks until every rank has joined.
Result<std::unique_ptr<Bootstrap>> join_rendezvous(const IdFields &fields, uint32_t size,
                                                   uint32_t rank, const RendezvousOptions &options,
                                                   Patience patience);

} // namespace qccl
