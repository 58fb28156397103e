// Every step that may fail here is agreed on before the next.
#include "transport/far_side.hpp"

#include "transport/headroom.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace qccl {

SocketBell make_bell(const TransportOptions &options, Introduction &introduction) {
    if (options.hosts.empty()) return {};
    auto bell = SocketBell::make();
    if (!bell) {
        introduction.fail(bell.error());
        return {};
    }
    introduction.bell = bell->name();
    return std::move(*bell);
}

// Nobody writes to a far rank's segment but this rank, what it has been told.
static Result<Mapping> make_notes(const SegmentShape &shape) {
    QCCL_TRY(const size_t bytes, shape.segment_bytes());
    QCCL_TRY(Mapping notes, Mapping::anonymous(bytes));
    Segment(notes.base(), shape).format();
    return notes;
}

Result<Party> make_party(const Roster &roster, uint32_t rank, SocketBell bell,
                         std::vector<NearSegment> near) {
    Party party(rank, roster.fences(rank), roster.pids());
    party.near_ranks = roster.near_ranks(rank);
    party.line_bytes = roster[rank].shape.line_bytes;
    party.bell = std::move(bell);
    party.bells = roster.bells();
    const SegmentShape shape = roster[rank].shape;
    const SegmentShape of_notes{
        .ranks = 0, .slots = 0, .line_bytes = shape.line_bytes, .notice_bytes = shape.notice_bytes};
    auto next = near.begin();
    for (uint32_t peer = 0; peer < roster.size(); peer++) {
        if (roster.is_near(rank, peer)) {
            party.segments.emplace_back(next->base, shape);
            party.keepers.push_back(std::move(next->keeper));
            party.overflows.push_back(std::move(next->overflow));
            ++next;
            continue;
        }
        party.far_ranks.push_back(peer);
        QCCL_TRY(Mapping notes, make_notes(of_notes));
        party.segments.emplace_back(notes.base(), of_notes);
        party.keepers.push_back(std::make_shared<Mapping>(std::move(notes)));
        party.overflows.push_back(nullptr);
    }
    return party;
}

namespace {

struct OpenedNetwork {
    Network network;
    Headroom headroom;
};

Result<OpenedNetwork> open_network(SharedTransport &transport, const TransportOptions &options) {
    const FarOptions &far = options.far;
    QCCL_TRY(const Headroom headroom, check_headroom(options.hosts, options.rank, far));
    const auto wished = [](const std::string &text) {
        return text.empty() ? nullptr : text.c_str();
    };
    QCCL_TRY(Network network, Network::open(*far.network,
                                            {.own = options.rank,
                                             .peers = options.size,
                                             .peer_timeout_ns = options.peer_timeout.count(),
                                             .transports = wished(far.transports),
                                             .devices = wished(far.devices)},
                                            transport.network_events()));
    return OpenedNetwork{std::move(network), headroom};
}

// What a rank tells all others of its end of the network, before its address.
struct EndSummary {
    uint64_t address_bytes = 0; // which differ, from rank to rank too
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

Done introduce_all(OpenedNetwork &own, const Roster &roster, const TransportOptions &options,
                   const AllGather &all_gather) {
    std::vector<std::byte> mine = own.network.address();
    const EndSummary summary{.address_bytes = mine.size(), .headroom = own.headroom};
    std::vector<EndSummary> ends(roster.size());
    QCCL_TRY(all_gather(&summary, ends.data(), sizeof summary));
    warn_of_limits(ends, options);
    uint64_t longest = 0;
    for (const EndSummary &end : ends) longest = std::max(longest, end.address_bytes);
    mine.resize(longest);
    std::vector<std::byte> all(longest * roster.size());
    QCCL_TRY(all_gather(mine.data(), all.data(), longest));
    for (uint32_t peer = 0; peer < roster.size(); peer++)
        if (!roster.is_near(options.rank, peer))
            own.network.introduce(peer,
                                  std::span(all).subspan(peer * longest, ends[peer].address_bytes));
    return {};
}

// Of what every rank has drawn and only the ranks know.
uint64_t session_of(const std::vector<LifeContact> &contacts) {
    uint64_t session = 0;
    for (const LifeContact &contact : contacts) {
        uint64_t drawn;
        std::memcpy(&drawn, contact.cookie.data(), sizeof drawn);
        session ^= drawn;
    }
    return session;
}

// Whether ranks a and a + 1 keep a connection. Of two ranks it is one.
bool is_kept(const Roster &roster, uint32_t a) {
    const uint32_t b = (a + 1) % roster.size();
    return !roster.is_near(a, b) && !(roster.size() == 2 && a == 1);
}

Done connect_neighbours(SharedTransport &transport, const LifePort &port,
                        const std::vector<LifeContact> &contacts, const Roster &roster,
                        const TransportOptions &options) {
    const TimePoint deadline =
        deadline_after(std::chrono::steady_clock::now(), options.peer_timeout);
    const uint32_t rank = options.rank, size = options.size;
    const uint32_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
    LifeMeeting meeting(port, rank);
    if (is_kept(roster, rank)) meeting.call(contacts[next], next);
    if (is_kept(roster, previous)) meeting.expect(previous);
    QCCL_TRY(meeting.run(deadline, options.prospect));
    const auto keep = [&](uint32_t peer, FileDescriptor connection) {
        if (!connection.is_open()) return;
        watch_life(connection, options.peer_timeout);
        transport.add_connection(peer, roster.near_ranks(peer), std::move(connection));
    };
    keep(next, meeting.take_called());
    keep(previous, meeting.take_expected());
    return {};
}

} // namespace

Done reach_hosts(SharedTransport &transport, const Roster &roster, const TransportOptions &options,
                 const AllGather &all_gather) {
    auto end = open_network(transport, options);
    auto port = LifePort::open(options.far.addresses);
    Done opened = outcome(end);
    if (opened) opened = outcome(port);
    QCCL_TRY(gather_done(opened, options.size, all_gather));
    QCCL_TRY(introduce_all(*end, roster, options, all_gather));
    std::vector<LifeContact> contacts(options.size);
    QCCL_TRY(all_gather(&port->contact(), contacts.data(), sizeof(LifeContact)));
    Done ready = transport.use(std::move(end->network), session_of(contacts));
    if (ready) ready = connect_neighbours(transport, *port, contacts, roster, options);
    if (!ready) *port = LifePort(); // so that a rank which calls this one does not go on waiting
    return gather_done(ready, options.size, all_gather);
}

} // namespace qccl
