// Both ends of a rendezvous whose addresses and secret are known by whatever way: opening its door
// and serving it, and walking in.
#pragma once

#include "bootstrap/channel.hpp"
#include "bootstrap/unique_id.hpp"

namespace qccl {

// Whether whoever comes when all ranks are there already is told so, or finds the port free for the
// next rendezvous.
enum class Afterwards : uint8_t { tell, make_room };

// At one port on all of them: that of the first, or if it is 0 any, which is then written into all.
// Those that turn out not to be this machine's are left out, as long as there are others.
Result<std::vector<Socket>> open_listeners(std::vector<Endpoint> &endpoints);

// Serves it in the background of this process.
Done serve_rendezvous(std::vector<Socket> listeners, const Secret &secret,
                      std::chrono::nanoseconds timeout, Afterwards afterwards);

// Whether who serves is already there, or may come later than we do.
enum class Patience : uint8_t { none, until_timeout };

// Tries the endpoints in turn.
Result<std::unique_ptr<Bootstrap>> join_rendezvous(const IdFields &fields, uint32_t size,
                                                   uint32_t rank, const RendezvousOptions &options,
                                                   Patience patience);

} // namespace qccl
