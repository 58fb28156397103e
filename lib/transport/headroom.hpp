// Whether the system's limits leave a process what a network between hosts takes. UCX does not say
// so itself: where UCX runs short of descriptors or memory it ends the process, or goes silent.
// Used by the creation of a communicator over several hosts, on the thread that creates it. Reads
// what the system says of the process and of its network interfaces, and does not block.
#pragma once

#include "base/result.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <span>

namespace qccl {

struct Headroom {
    // The limit on descriptors (ulimit -n) under which all connections can be made at once; 0 where
    // the limit is that high.
    uint64_t advised_descriptors = 0;
};

// `rank` asks before it loads UCX, with no network in `far`, and again before it starts UCX.
// `hosts` holds each rank's host; `far` says which devices UCX may use and at how many addresses
// the rank listens. What is still to be opened and loaded until then is counted. The error,
// system_error, names the limit and what it has to be at least. Limits that cannot be read count as
// none.
Result<Headroom> check_headroom(std::span<const uint32_t> hosts, uint32_t rank,
                                const FarOptions &far);

} // namespace qccl
