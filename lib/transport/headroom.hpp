// Checks whether the system's limits leave a process enough descriptors and address space for a
// network between hosts. UCX does not check this itself: if UCX runs short of descriptors or
// memory, it ends the process or goes silent. Used when a communicator over several hosts is
// created, on the thread that creates it. The check reads what the system reports about the process
// and its network interfaces; it does not block.
#pragma once

#include "base/result.hpp"
#include "transport/transport.hpp"

#include <cstdint>
#include <span>

namespace qccl {

struct Headroom {
    // The limit on descriptors (ulimit -n) that lets all connections be made at once; 0 if the
    // present limit is high enough.
    uint64_t advised_descriptors = 0;
};

// A rank calls this before it loads UCX, with no network in `far`, and again before it starts UCX.
// `hosts` holds each rank's host; `far` says which devices UCX may use and at how many addresses
// the rank listens. The check counts what the rank has yet to open and to load. Returns
// system_error, which names the limit and the least value that it must have. A limit that cannot be
// read counts as no limit.
Result<Headroom> check_headroom(std::span<const uint32_t> hosts, uint32_t rank,
                                const RemoteOptions &far);

} // namespace qccl
