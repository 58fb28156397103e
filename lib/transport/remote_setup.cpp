// Connects ranks of different hosts at creation. The ranks agree on the outcome of every step that
// may fail before they begin the next.
#include "transport/remote_setup.hpp"

#include "transport/network.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace qccl {

RecordOwner record_owner(const TransportOptions &options, const PeerInfoTable &peer_info) {
    return {.rank = options.rank,
            .ranks = options.size,
            .session = peer_info.session(),
            .communicator = options.record.communicator};
}

SocketBell make_bell(const TransportOptions &options, PeerInfo &info) {
    if (options.hosts.empty()) return {};
    auto bell = SocketBell::make();
    if (!bell) {
        info.fail(bell.error());
        return {};
    }
    info.bell = bell->name();
    return std::move(*bell);
}

// Makes the private segment of a remote rank. Only this rank writes to it, what the remote rank has
// told it.
static Result<Mapping> make_notes(const SegmentShape &shape) {
    QCCL_TRY(const size_t bytes, shape.segment_bytes());
    QCCL_TRY(Mapping notes, Mapping::anonymous(bytes));
    Segment(notes.base(), shape).format();
    return notes;
}

Result<PeerTable> make_peer_table(const PeerInfoTable &peer_info, uint32_t rank, SocketBell bell,
                                  std::vector<LocalSegment> local) {
    PeerTable peer_table(rank, peer_info.fences(rank), peer_info.pids());
    peer_table.local_ranks = peer_info.local_ranks(rank);
    peer_table.eager_slot_bytes = peer_info[rank].shape.eager_slot_bytes;
    peer_table.bell = std::move(bell);
    peer_table.bells = peer_info.bells();
    const SegmentShape shape = peer_info[rank].shape;
    const SegmentShape of_notes{.ranks = 0,
                                .slots = 0,
                                .eager_slot_bytes = shape.eager_slot_bytes,
                                .record_bytes = shape.record_bytes};
    auto next = local.begin();
    for (uint32_t peer = 0; peer < peer_info.size(); peer++) {
        if (peer_info.is_local(rank, peer)) {
            peer_table.segments.emplace_back(next->base, shape);
            peer_table.keepers.push_back(std::move(next->keeper));
            peer_table.overflows.push_back(std::move(next->overflow));
            ++next;
            continue;
        }
        peer_table.remote_ranks.push_back(peer);
        QCCL_TRY(Mapping notes, make_notes(of_notes));
        peer_table.segments.emplace_back(notes.base(), of_notes);
        peer_table.keepers.push_back(std::make_shared<Mapping>(std::move(notes)));
        peer_table.overflows.push_back(nullptr);
    }
    return peer_table;
}

namespace {

struct OpenedNetwork {
    Network network;
    Headroom headroom;
};

Result<OpenedNetwork> open_network(SharedTransport &transport, const TransportOptions &options) {
    const RemoteOptions &remote = options.remote;
    QCCL_TRY(const Headroom headroom, check_headroom(options.hosts, options.rank, remote));
    const auto wished = [](const std::string &text) {
        return text.empty() ? nullptr : text.c_str();
    };
    QCCL_TRY(Network network, Network::open(*remote.network,
                                            {.own = options.rank,
                                             .peers = options.size,
                                             .peer_timeout_ns = options.peer_timeout.count(),
                                             .transports = wished(remote.transports),
                                             .devices = wished(remote.devices)},
                                            transport.network_events()));
    return OpenedNetwork{std::move(network), headroom};
}

// What a rank tells all others about its end of the network before its address.
struct EndSummary {
    uint64_t address_bytes = 0; // may differ from rank to rank
    Headroom headroom;
};

// The lowest rank that is short of descriptors warns for all.
void warn_of_limits(const std::vector<EndSummary> &all, const TransportOptions &options) {
    const auto is_short = [](const EndSummary &each) {
        return each.headroom.advised_descriptors != 0;
    };
    const auto first = std::find_if(all.begin(), all.end(), is_short);
    if (!options.warn || first == all.end() || first - all.begin() != options.rank) return;
    const Error warning = Error::make(
        Code::system_error,
        "the limit on open files is low: the first call connects this rank to all ranks of other "
        "hosts, which fails if too many of them connect at once; ulimit -n of %" PRIu64
        " is enough for all",
        first->headroom.advised_descriptors);
    options.warn(warning.text);
}

Done add_all_peers(OpenedNetwork &own, const PeerInfoTable &peer_info,
                   const TransportOptions &options, const AllGather &all_gather) {
    std::vector<std::byte> mine = own.network.address();
    const EndSummary summary{.address_bytes = mine.size(), .headroom = own.headroom};
    std::vector<EndSummary> ends(peer_info.size());
    QCCL_TRY(all_gather(&summary, ends.data(), sizeof summary));
    warn_of_limits(ends, options);
    uint64_t longest = 0;
    for (const EndSummary &end : ends) longest = std::max(longest, end.address_bytes);
    mine.resize(longest);
    std::vector<std::byte> all(longest * peer_info.size());
    QCCL_TRY(all_gather(mine.data(), all.data(), longest));
    for (uint32_t peer = 0; peer < peer_info.size(); peer++)
        if (!peer_info.is_local(options.rank, peer))
            own.network.add_peer(peer,
                                 std::span(all).subspan(peer * longest, ends[peer].address_bytes));
    return {};
}

// Returns a session number made of random bytes of every rank, which only the ranks know.
uint64_t session_of(const std::vector<KeepaliveAddress> &contacts) {
    uint64_t session = 0;
    for (const KeepaliveAddress &contact : contacts) {
        uint64_t drawn;
        std::memcpy(&drawn, contact.cookie.data(), sizeof drawn);
        session ^= drawn;
    }
    return session;
}

// Returns whether ranks a and a + 1 keep a connection. Two ranks keep only one.
bool is_kept(const PeerInfoTable &peer_info, uint32_t a) {
    const uint32_t b = (a + 1) % peer_info.size();
    return !peer_info.is_local(a, b) && !(peer_info.size() == 2 && a == 1);
}

Done connect_neighbours(SharedTransport &transport, const KeepaliveListener &port,
                        const std::vector<KeepaliveAddress> &contacts,
                        const PeerInfoTable &peer_info, const TransportOptions &options) {
    const TimePoint deadline =
        deadline_after(std::chrono::steady_clock::now(), options.peer_timeout);
    const uint32_t rank = options.rank, size = options.size;
    const uint32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    KeepaliveConnector meeting(port, rank);
    if (is_kept(peer_info, rank)) meeting.call(contacts[next], next);
    if (is_kept(peer_info, previous)) meeting.expect(previous);
    QCCL_TRY(meeting.run(deadline, options.cancel_check));
    const auto keep = [&](uint32_t peer, FileDescriptor connection) {
        if (!connection.is_open()) return;
        enable_keepalive(connection, options.peer_timeout);
        transport.add_connection(peer, peer_info.local_ranks(peer), std::move(connection));
    };
    keep(next, meeting.take_called());
    keep(previous, meeting.take_expected());
    return {};
}

} // namespace

Done connect_remote(SharedTransport &transport, const PeerInfoTable &peer_info,
                    const TransportOptions &options, const AllGather &all_gather) {
    auto end = open_network(transport, options);
    auto port = KeepaliveListener::open(options.remote.addresses);
    Done opened = outcome(end);
    if (opened) opened = outcome(port);
    QCCL_TRY(gather_done(opened, options.size, all_gather));
    QCCL_TRY(add_all_peers(*end, peer_info, options, all_gather));
    std::vector<KeepaliveAddress> contacts(options.size);
    QCCL_TRY(all_gather(&port->contact(), contacts.data(), sizeof(KeepaliveAddress)));
    Done ready = transport.use(std::move(end->network), session_of(contacts));
    if (ready) ready = connect_neighbours(transport, *port, contacts, peer_info, options);
    if (!ready)
        *port = KeepaliveListener(); // closed: a rank that connects to this one stops waiting
    return gather_done(ready, options.size, all_gather);
}

} // namespace qccl
