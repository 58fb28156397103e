// Creates the two transports of which the ranks of one host share memory. Each rank calls the
// function on the thread that creates its communicator; the function blocks until all ranks have
// done the same.
//
// inproc: ranks are threads of one process and segments are plain memory. A rank may be destroyed
// while other ranks still read its segment, so every rank holds every segment.
//
// shm: the ranks of one host are processes, or threads that share nothing. All ranks check that
// they fit together, and each makes its segment. The ranks of each host then exchange the
// descriptors of their segments and of their processes.
//
// Both connect the ranks of different hosts in the same way. All ranks agree on the outcome of
// every step that may fail before they begin the next.

#include "base/shared_memory.hpp"
#include "base/system.hpp"
#include "base/text.hpp"
#include "fault/liveness.hpp"
#include "memory/peer_table.hpp"
#include "net/fd_exchange.hpp"
#include "transport/network.hpp"
#include "transport/peer_info.hpp"
#include "transport/shared_transport.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <optional>

#include <fcntl.h>

namespace qccl {

// A local rank's segment, and what keeps its memory.
struct LocalSegment {
    std::byte *base = nullptr;
    std::shared_ptr<const void> keeper;
    std::unique_ptr<OverflowMemory> overflow = {};
};

static RecordOwner record_owner(const TransportOptions &options, const PeerInfoTable &peer_info) {
    return {.rank = options.rank,
            .ranks = options.size,
            .session = peer_info.session(),
            .communicator = options.record.communicator};
}

// Makes the socket bell that wakes this rank while it sleeps, if there are several hosts. With one
// host the returned bell is not open. Writes the bell's name into `info`, or the error.
static SocketBell make_bell(const TransportOptions &options, PeerInfo &info) {
    if (options.hosts.empty()) return {};
    auto bell = SocketBell::make();
    if (!bell) {
        info.outcome.error = bell.error();
        return {};
    }
    info.bell = bell->name();
    return std::move(*bell);
}

// Makes the private segment that stands for a remote rank: this rank alone writes to it, and writes
// what the remote rank has told it.
static Result<Mapping> make_notes(const SegmentShape &shape) {
    QCCL_TRY(const size_t bytes, shape.segment_bytes());
    QCCL_TRY(Mapping notes, Mapping::anonymous(bytes));
    Segment(notes.base(), shape).format();
    return notes;
}

// Makes the table of all ranks. `local`: the segments of the local ranks, ascending by rank. A
// remote rank gets a private segment in which this rank notes what that rank has told it.
static Result<PeerTable> make_peer_table(const PeerInfoTable &peer_info, uint32_t rank,
                                         SocketBell bell, std::vector<LocalSegment> local) {
    PeerTable peer_table(rank, peer_info.fences(rank), peer_info.pids());
    peer_table.local_ranks = peer_info.local_ranks(rank);
    peer_table.eager_slot_bytes = peer_info[rank].shape.eager_slot_bytes;
    peer_table.bell = std::move(bell);
    peer_table.bells = peer_info.bells();
    const SegmentShape shape = peer_info[rank].shape;
    const SegmentShape of_notes{.ranks = 0,
                                .slots = 0,
                                .eager_slot_bytes = shape.eager_slot_bytes,
                                .record_bytes = shape.record_bytes,
                                .calls = shape.calls};
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

// The ranks of other hosts with which a rank keeps a connection: it connects to the next one, and
// the previous one connects to it. Two ranks keep only one connection.
struct KeptNeighbours {
    std::optional<uint32_t> previous, next;
};

KeptNeighbours neighbours_of(const PeerInfoTable &peer_info, uint32_t rank) {
    const uint32_t size = peer_info.size();
    const uint32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    const auto connects = [&](uint32_t a, uint32_t b) {
        return !peer_info.is_local(a, b) && !(size == 2 && a == 1);
    };
    KeptNeighbours kept;
    if (connects(previous, rank)) kept.previous = previous;
    if (connects(rank, next)) kept.next = next;
    return kept;
}

Done connect_neighbours(SharedTransport &transport, const KeepaliveListener &port,
                        const std::vector<KeepaliveAddress> &contacts,
                        const PeerInfoTable &peer_info, const TransportOptions &options) {
    const TimePoint deadline =
        deadline_after(std::chrono::steady_clock::now(), options.peer_timeout);
    const KeptNeighbours kept = neighbours_of(peer_info, options.rank);
    KeepaliveConnector connector(port, options.rank);
    if (kept.next) connector.call(contacts[*kept.next], *kept.next);
    if (kept.previous) connector.expect(*kept.previous);
    QCCL_TRY(connector.run(deadline, options.cancel_check));
    const auto keep = [&](std::optional<uint32_t> peer, FileDescriptor connection) {
        if (!peer) return;
        enable_keepalive(connection, options.peer_timeout);
        transport.add_connection(*peer, peer_info.local_ranks(*peer), std::move(connection));
    };
    keep(kept.next, connector.take_called());
    keep(kept.previous, connector.take_expected());
    return {};
}

// Tells the log how this rank reaches other hosts. `network`: what the network says of itself.
void tell_remote(const TransportOptions &options, const PeerInfoTable &peer_info,
                 const std::string &network, std::chrono::nanoseconds opening,
                 std::chrono::nanoseconds connecting) {
    const KeptNeighbours kept = neighbours_of(peer_info, options.rank);
    std::string ranks;
    for (const auto neighbour : {kept.previous, kept.next})
        if (neighbour)
            ranks.append(ranks.empty() ? " to rank " : " and rank ")
                .append(std::to_string(*neighbour));
    options.tell(("network " + network + " opened in " + print_time(opening) + "; " +
                  (ranks.empty() ? "no " : "") + "keepalive connections" + ranks +
                  "; all ranks connected after another " + print_time(connecting))
                     .c_str());
}

// The first rank of each host tells the log of the memory that its ranks share.
void tell_segments(const TransportOptions &options, const PeerInfoTable &peer_info,
                   TimePoint start) {
    const std::vector<uint32_t> ranks = peer_info.local_ranks(options.rank);
    if (!options.tell || ranks.front() != options.rank) return;
    const SegmentShape &shape = peer_info[options.rank].shape;
    const auto bytes = shape.segment_bytes();
    std::string text = std::to_string(ranks.size());
    text.append(ranks.size() == 1 ? " rank on this host has " : " ranks on this host share ")
        .append(print_bytes(bytes ? *bytes : 0))
        .append(ranks.size() == 1 ? " of memory: outbox " : " of memory each: outbox ")
        .append(print_bytes(shape.outbox_bytes))
        .append(", inbox ")
        .append(print_bytes(shape.inbox_bytes))
        .append(", eager slots of ")
        .append(print_bytes(shape.eager_slot_bytes))
        .append("; shared after ")
        .append(print_time(std::chrono::steady_clock::now() - start));
    options.tell(text.c_str());
}

} // namespace

// Opens the network, and a keepalive connection to the rank before and the rank after this one if
// they are on other hosts. Together these connections show the end of any process or host, because
// the ranks of one host watch each other. All ranks call this if there are several hosts. If any
// rank fails, all ranks return the same error.
static Done connect_remote(SharedTransport &transport, const PeerInfoTable &peer_info,
                           const TransportOptions &options, const AllGather &all_gather) {
    const TimePoint start = std::chrono::steady_clock::now();
    auto end = open_network(transport, options);
    const TimePoint opened_at = std::chrono::steady_clock::now();
    auto port = KeepaliveListener::open(options.remote.addresses);
    Done opened = outcome(end);
    if (opened) opened = outcome(port);
    QCCL_TRY(gather_done(opened, options.size, all_gather));
    QCCL_TRY(add_all_peers(*end, peer_info, options, all_gather));
    std::vector<KeepaliveAddress> contacts(options.size);
    QCCL_TRY(all_gather(&port->contact(), contacts.data(), sizeof(KeepaliveAddress)));
    const std::string network =
        options.tell ? std::string(end->network.name()) + " " + end->network.description() : "";
    Done ready = transport.use(std::move(end->network), session_of(contacts));
    if (ready) ready = connect_neighbours(transport, *port, contacts, peer_info, options);
    if (!ready)
        *port = KeepaliveListener(); // closed: a rank that connects to this one stops waiting
    QCCL_TRY(gather_done(ready, options.size, all_gather));
    if (options.tell)
        tell_remote(options, peer_info, network, opened_at - start,
                    std::chrono::steady_clock::now() - opened_at);
    return {};
}

// ---- Ranks as threads: inproc

namespace {

// A segment and the number of ranks that still hold it. The count includes every rank from the
// start, before the rank has got the segment's address. If the exchange of addresses fails
// half-way, the ranks that never get the address never give up their claims, and the memory stays:
// no rank can know that it is unused.
struct ClaimedSegment {
    Mapping memory;
    std::atomic<uint32_t> claims;
    FlightRecorderFile records; // in rank 0's segment only; for all ranks
    PlainOverflow overflow{};
};

// What a rank gives the others; the ranks are threads, so the address serves all of them.
struct SegmentOffer {
    ClaimedSegment *segment = nullptr;
    RankOutcome outcome = {};
};

std::shared_ptr<const void> hold(ClaimedSegment *segment) {
    return std::shared_ptr<ClaimedSegment>(segment, [](ClaimedSegment *held) {
        if (held->claims.fetch_sub(1, std::memory_order_acq_rel) == 1) delete held;
    });
}

Result<Mapping> make_segment(const SegmentShape &shape) {
    QCCL_TRY(const size_t bytes, shape.segment_bytes());
    return Mapping::anonymous(bytes);
}

Result<FlightRecorderFile> make_records(const TransportOptions &options,
                                        const PeerInfoTable &peer_info) {
    if (options.rank != 0) return FlightRecorderFile();
    return FlightRecorderFile::make(options.record, peer_info.session(), 0, options.size, 0);
}

} // namespace

Result<std::unique_ptr<Transport>> create_inproc_transport(const TransportOptions &options,
                                                           const AllGather &all_gather) {
    const TimePoint start = std::chrono::steady_clock::now();
    const SegmentShape shape = shape_of(options);
    auto memory = make_segment(shape);
    PeerInfo info;
    info.shape = shape;
    SocketBell bell = make_bell(options, info);
    if (!memory) info.outcome.error = memory.error();
    QCCL_TRY(const PeerInfoTable peer_info, PeerInfoTable::gather(info, all_gather, options.hosts));
    auto records = make_records(options, peer_info);

    Segment(memory->base(), shape).format();
    // A rank without a record offers its segment, too, because the others claim all or none.
    SegmentOffer mine{.segment =
                          new ClaimedSegment{std::move(*memory), options.size,
                                             records ? std::move(*records) : FlightRecorderFile()}};
    if (!records) mine.outcome.error = records.error();
    std::vector<SegmentOffer> offers(options.size);
    QCCL_TRY(all_gather(&mine, offers.data(), sizeof mine));

    std::vector<LocalSegment> local;
    std::vector<std::shared_ptr<const void>> others; // remote ranks' segments, held but not read
    for (uint32_t peer = 0; peer < options.size; peer++) {
        ClaimedSegment &segment = *offers[peer].segment;
        std::shared_ptr<const void> keeper = hold(&segment);
        if (peer_info.is_local(options.rank, peer))
            local.push_back(
                {segment.memory.base(), std::move(keeper), view_plain_overflow(segment.overflow)});
        else
            others.push_back(std::move(keeper));
    }
    for (uint32_t peer = 0; peer < options.size; peer++)
        QCCL_TRY(offers[peer].outcome.of_rank(peer));
    QCCL_TRY(PeerTable peer_table,
             make_peer_table(peer_info, options.rank, std::move(bell), std::move(local)));
    auto transport = std::make_unique<SharedTransport>(
        "inproc", std::move(peer_table), LivenessMonitor(), peer_info,
        offers[0].segment->records.recorder(options.rank, record_owner(options, peer_info), {}),
        options);
    tell_segments(options, peer_info, start);
    if (!options.hosts.empty())
        QCCL_TRY(connect_remote(*transport, peer_info, options, all_gather));
    return std::unique_ptr<Transport>(std::move(transport));
}

// ---- Ranks as processes: shm

namespace {

static_assert(sizeof(FdExchangeAddress) <= sizeof PeerInfo{}.contact);

// A rank's end of the exchange of descriptors, which it opens before it knows the others.
struct FdExchangeEnd {
    FdExchangeServer server; // on the host's lowest rank only
    FdExchangeClient client; // on the other ranks
};

Result<FdExchangeEnd> open_fd_exchange(const TransportOptions &options) {
    const auto &hosts = options.hosts;
    const bool is_lowest = hosts.empty()
                               ? options.rank == 0
                               : std::find(hosts.begin(), hosts.end(), hosts[options.rank]) ==
                                     hosts.begin() + options.rank;
    FdExchangeEnd end;
    if (is_lowest) {
        QCCL_TRY(end.server, FdExchangeServer::open());
    } else {
        QCCL_TRY(end.client, FdExchangeClient::open());
    }
    return end;
}

// What a rank makes once all ranks fit together.
struct OwnDescriptors {
    FdPair pair;         // memory, and the descriptor that shows whether this process lives
    FileDescriptor life; // held open for that descriptor
    FileDescriptor file; // of the memory, for its growth
    Mapping memory;
};

// Of the outbox: as much as small calls use. Page faults of a whole outbox take as long as all else
// that creation does, and many communicators never make a large call.
constexpr size_t populated_bytes = size_t{1} << 20;

Result<OwnDescriptors> make_own_descriptors(const SegmentShape &shape) {
    OwnDescriptors mine;
    QCCL_TRY(const size_t bytes, shape.segment_bytes());
    QCCL_TRY(mine.pair[0], create_shared_memory(bytes));
    mine.file = FileDescriptor(fcntl(mine.pair[0].number(), F_DUPFD_CLOEXEC, 0));
    if (!mine.file.is_open())
        return Error::make(Code::system_error, "shared memory: %s", describe_errno(errno).c_str());
    QCCL_TRY(ProcessLiveness liveness, ProcessLiveness::open());
    mine.pair[1] = std::move(liveness.shown);
    mine.life = std::move(liveness.held);
    QCCL_TRY(mine.memory, map_shared_memory(mine.pair[0], bytes));
    const Segment segment(mine.memory.base(), shape);
    const auto before_outbox = static_cast<size_t>(segment.outbox().data() - mine.memory.base());
    mine.memory.populate(before_outbox + populated_bytes);
    segment.format();
    return mine;
}

// The mapped memory of all ranks of this host, and a view of their processes.
struct LocalRanks {
    std::vector<LocalSegment> local;
    LivenessMonitor liveness;
};

// `file` is given only for this rank's own memory.
LocalSegment local_segment(Mapping memory, const SegmentShape &shape, FileDescriptor file = {}) {
    std::byte *const base = memory.base();
    const Segment segment(base, shape);
    auto overflow =
        file.is_open() ? own_file_overflow(segment, std::move(file)) : view_file_overflow(segment);
    return {base, std::make_shared<Mapping>(std::move(memory)), std::move(overflow)};
}

Result<LocalRanks> exchange_descriptors(FdExchangeEnd end, OwnDescriptors mine,
                                        const PeerInfoTable &peer_info,
                                        const TransportOptions &options) {
    const std::vector<uint32_t> ranks = peer_info.local_ranks(options.rank);
    const auto place = static_cast<uint32_t>(
        std::lower_bound(ranks.begin(), ranks.end(), options.rank) - ranks.begin());
    FdExchangeAddress address;
    std::memcpy(&address, peer_info[ranks.front()].contact, sizeof address);
    auto pairs = place == 0 ? end.server.serve(std::move(mine.pair), ranks, options.peer_timeout,
                                               options.cancel_check)
                            : end.client.join(address, place, ranks, std::move(mine.pair),
                                              options.peer_timeout);
    if (!pairs) return pairs.error();
    LocalRanks all;
    const SegmentShape &shape = peer_info[options.rank].shape;
    const size_t bytes = mine.memory.bytes(); // equal on all ranks, since the shapes are
    std::vector<FileDescriptor> shown(options.size);
    for (uint32_t i = 0; i < ranks.size(); i++) {
        if (i == place) {
            all.local.push_back(local_segment(std::move(mine.memory), shape, std::move(mine.file)));
        } else {
            QCCL_TRY(Mapping theirs, map_shared_memory((*pairs)[i][0], bytes));
            all.local.push_back(local_segment(std::move(theirs), shape));
        }
        shown[ranks[i]] = std::move((*pairs)[i][1]);
    }
    all.liveness = LivenessMonitor(std::move(shown), std::move(mine.life));
    return all;
}

Result<Recorder> make_recorder(const TransportOptions &options, const PeerInfoTable &peer_info) {
    const std::vector<int64_t> pids = peer_info.pids();
    std::vector<RecordedProcess> listed;
    for (const uint32_t rank : peer_info.local_ranks(options.rank))
        listed.push_back({.rank = rank, .pid = static_cast<int32_t>(pids[rank])});
    QCCL_TRY(const FlightRecorderFile file,
             FlightRecorderFile::make(options.record, peer_info.session(), options.rank, 1,
                                      static_cast<uint32_t>(listed.size())));
    return file.recorder(0, record_owner(options, peer_info), listed);
}

} // namespace

Result<std::unique_ptr<Transport>> create_shm_transport(const TransportOptions &options,
                                                        const AllGather &all_gather) {
    const TimePoint start = std::chrono::steady_clock::now();
    auto fd_exchange = open_fd_exchange(options);
    PeerInfo info;
    info.shape = shape_of(options);
    info.free_bytes = free_memory_of(options)();
    SocketBell bell = make_bell(options, info);
    if (!fd_exchange)
        info.outcome.error = fd_exchange.error();
    else
        std::memcpy(info.contact, &fd_exchange->server.address(), sizeof(FdExchangeAddress));
    QCCL_TRY(const PeerInfoTable peer_info, PeerInfoTable::gather(info, all_gather, options.hosts));

    auto mine = make_own_descriptors(info.shape);
    QCCL_TRY(gather_done(outcome(mine), options.size, all_gather));
    auto all = exchange_descriptors(std::move(*fd_exchange), std::move(*mine), peer_info, options);
    auto recorder = make_recorder(options, peer_info); // last: no other step needs it
    const Done ready = all ? outcome(recorder) : outcome(all);
    // With one host this is the last step, and the caller tells the other ranks.
    QCCL_TRY(options.hosts.empty() ? ready : gather_done(ready, options.size, all_gather));

    QCCL_TRY(PeerTable peer_table,
             make_peer_table(peer_info, options.rank, std::move(bell), std::move(all->local)));
    auto transport =
        std::make_unique<SharedTransport>("shm", std::move(peer_table), std::move(all->liveness),
                                          peer_info, std::move(*recorder), options);
    tell_segments(options, peer_info, start);
    if (!options.hosts.empty())
        QCCL_TRY(connect_remote(*transport, peer_info, options, all_gather));
    return std::unique_ptr<Transport>(std::move(transport));
}

} // namespace qccl
