// Both ends of a rendezvous whose addresses and secret are known by whatever way: opening its door
// and serving it, and walking in.
#pragma once

#include "bootstrap/channel.hpp"
#include "bootstrap/unique_id.hpp"

namespace qccl {

// Whether a rank that comes when all ranks are there already is told so as long as any of them is,
// or for a while, in which the port is left to a rank that asks for it for the next rendezvous. To
// that all ranks of this one may come early.
enum class Afterwards : uint8_t { tell, make_room };

// At one port on all of them: that of the first, or if it is 0 any, which is then written into all.
// Those that turn out not to be this machine's are left out, as long as there are others.
Result<std::vector<Socket>> open_listeners(std::vector<Endpoint> &endpoints);

// Serves it in the background of this process. With make_room the thread that serves calls
// options.warn, at most once and before all ranks are there, of a process with another secret.
Done serve_rendezvous(std::vector<Socket> listeners, const Secret &secret,
                      const RendezvousOptions &options, Afterwards afterwards);

// Asks the process that listens where rank 0 wants to serve to leave the port to it. It does so if
// it has served its rendezvous. An error: it serves this rendezvous, and is rank 0, too; both know
// now. Success says nothing but that it is worth while to try again.
Done ask_for_room(const IdFields &fields, uint32_t size, const RendezvousOptions &options);

// Whether who serves is already there, or may come later than we do.
enum class Patience : uint8_t { none, until_timeout };

// Tries the endpoints in turn.
Result<std::unique_ptr<Bootstrap>> join_rendezvous(const IdFields &fields, uint32_t size,
                                                   uint32_t rank, const RendezvousOptions &options,
                                                   Patience patience);

} // namespace qccl
