// What a rank makes to deal with the ranks of other hosts, whatever the ranks of its own host
// share.
#pragma once

#include "transport/life_meeting.hpp"
#include "transport/roster.hpp"
#include "transport/shared_transport.hpp"

namespace qccl {

// A near rank's segment, and what keeps it.
struct NearSegment {
    std::byte *base = nullptr;
    std::shared_ptr<const void> keeper;
    std::unique_ptr<OverflowMemory> overflow = {};
};

// How a rank that sleeps is woken, where there are several hosts; nothing where there is one. Its
// name goes into the introduction, or what went wrong.
SocketBell make_bell(const TransportOptions &options, Introduction &introduction);
// `near` in the order of the roster's near ranks; of far ranks the party has this rank's notes.
Result<Party> make_party(const Roster &roster, uint32_t rank, SocketBell bell,
                         std::vector<NearSegment> near);

// Opens the network, and a connection to the rank before and after this one where they are on other
// hosts: between them those show the end of any process or host, since ranks of one host see each
// other. Every rank, where there are several hosts.
Done reach_hosts(SharedTransport &transport, const Roster &roster, const TransportOptions &options,
                 const AllGather &all_gather);

} // namespace qccl
