// Sets up a rank's communication with the ranks of other hosts, however the ranks of one host share
// memory. Used at the creation of the shm and inproc transports, on the thread that creates the
// communicator. connect_remote blocks in all-gathers and while ranks connect; the others do not
// block.
#pragma once

#include "fault/liveness.hpp"
#include "transport/peer_info.hpp"
#include "transport/shared_transport.hpp"

namespace qccl {

// A local rank's segment, and what keeps its memory.
struct LocalSegment {
    std::byte *base = nullptr;
    std::shared_ptr<const void> keeper;
    std::unique_ptr<OverflowMemory> overflow = {};
};

RecordOwner record_owner(const TransportOptions &options, const PeerInfoTable &peer_info);

// Makes the socket bell that wakes this rank while it sleeps, if there are several hosts. With one
// host the returned bell is not open. Writes the bell's name into `info`, or the error.
SocketBell make_bell(const TransportOptions &options, PeerInfo &info);
// Makes the table of all ranks. `local`: the segments of the local ranks, ascending by rank. A
// remote rank gets a private segment in which this rank notes what that rank has told it.
Result<PeerTable> make_peer_table(const PeerInfoTable &peer_info, uint32_t rank, SocketBell bell,
                                  std::vector<LocalSegment> local);

// Opens the network, and a keepalive connection to the rank before and the rank after this one if
// they are on other hosts. Together these connections show the end of any process or host, because
// the ranks of one host watch each other. All ranks call this if there are several hosts. If any
// rank fails, all ranks return the same error.
Done connect_remote(SharedTransport &transport, const PeerInfoTable &peer_info,
                    const TransportOptions &options, const AllGather &all_gather);

} // namespace qccl
