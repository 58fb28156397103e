// shm: ranks of one host are processes, or threads that know nothing of each other. All see that
// they fit together, each makes its segment, those of each host pass theirs around together with a
// lifeline, and every step that may fail is agreed on.
#include "base/system_error.hpp"
#include "transport/far_side.hpp"
#include "transport/fd_star.hpp"
#include "transport/memory_claim.hpp"
#include "transport/shared_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>

namespace qccl {

namespace {

static_assert(sizeof(StarAddress) <= sizeof Introduction{}.contact);

// What a rank makes before it knows of the others.
struct Door {
    FdStar star; // the host's lowest rank only
    FdRay ray;   // the others
};

Result<Door> open_door(const TransportOptions &options) {
    const auto &hosts = options.hosts;
    const bool is_lowest = hosts.empty()
                               ? options.rank == 0
                               : std::find(hosts.begin(), hosts.end(), hosts[options.rank]) ==
                                     hosts.begin() + options.rank;
    Door door;
    if (is_lowest) {
        QCCL_TRY(door.star, FdStar::open());
    } else {
        QCCL_TRY(door.ray, FdRay::open());
    }
    return door;
}

// What it makes when all of them fit together.
struct Belongings {
    FdPair pair;         // memory, lifeline
    FileDescriptor life; // held open for it
    FileDescriptor file; // of the memory, in which it grows
    Mapping memory;
};

Result<Belongings> prepare(const SegmentShape &shape) {
    Belongings mine;
    QCCL_TRY(const size_t bytes, shape.segment_bytes());
    QCCL_TRY(mine.pair[0], create_shared_memory(bytes));
    mine.file = FileDescriptor(fcntl(mine.pair[0].number(), F_DUPFD_CLOEXEC, 0));
    if (!mine.file.is_open())
        return Error::make(Code::system_error, "shared memory: %s", describe_errno(errno).c_str());
    QCCL_TRY(Lifeline lifeline, Lifeline::open());
    mine.pair[1] = std::move(lifeline.shown);
    mine.life = std::move(lifeline.held);
    QCCL_TRY(mine.memory, map_shared_memory(mine.pair[0], bytes));
    mine.memory.populate();
    Segment(mine.memory.base(), shape).format();
    return mine;
}

// The memory of everyone on this host, mapped, and everyone's lifeline.
struct Exchanged {
    std::vector<NearSegment> near;
    Lifelines lifelines;
};

// Without `file`, another rank's.
NearSegment keep(Mapping memory, const SegmentShape &shape, FileDescriptor file = {}) {
    std::byte *const base = memory.base();
    const Segment segment(base, shape);
    auto overflow =
        file.is_open() ? own_file_overflow(segment, std::move(file)) : view_file_overflow(segment);
    return {base, std::make_shared<Mapping>(std::move(memory)), std::move(overflow)};
}

Result<Exchanged> exchange(Door door, Belongings mine, const Roster &roster,
                           const TransportOptions &options) {
    const std::vector<uint32_t> ranks = roster.near_ranks(options.rank);
    const auto place = static_cast<uint32_t>(
        std::lower_bound(ranks.begin(), ranks.end(), options.rank) - ranks.begin());
    StarAddress address;
    std::memcpy(&address, roster[ranks.front()].contact, sizeof address);
    auto pairs =
        place == 0
            ? door.star.serve(std::move(mine.pair), ranks, options.peer_timeout, options.prospect)
            : door.ray.join(address, place, ranks, std::move(mine.pair), options.peer_timeout);
    if (!pairs) return pairs.error();
    Exchanged all;
    const SegmentShape &shape = roster[options.rank].shape;
    const size_t bytes = mine.memory.bytes(); // everyone's: the shapes are equal
    std::vector<FileDescriptor> shown(options.size);
    for (uint32_t i = 0; i < ranks.size(); i++) {
        if (i == place) {
            all.near.push_back(keep(std::move(mine.memory), shape, std::move(mine.file)));
        } else {
            QCCL_TRY(Mapping theirs, map_shared_memory((*pairs)[i][0], bytes));
            all.near.push_back(keep(std::move(theirs), shape));
        }
        shown[ranks[i]] = std::move((*pairs)[i][1]);
    }
    all.lifelines = Lifelines(std::move(shown), std::move(mine.life));
    return all;
}

Result<Recorder> make_recorder(const TransportOptions &options, const Roster &roster) {
    const std::vector<uint32_t> listed = roster.near_ranks(options.rank);
    QCCL_TRY(const RecordRoom room, RecordRoom::make(options, roster.session(), options.rank, 1,
                                                     static_cast<uint32_t>(listed.size())));
    return room.recorder(0, options, roster, listed);
}

} // namespace

Result<std::unique_ptr<Transport>> create_shm_transport(const TransportOptions &options,
                                                        const AllGather &all_gather) {
    auto door = open_door(options);
    Introduction introduction;
    introduction.shape = shape_of(options);
    introduction.free_bytes = free_memory_of(options)();
    SocketBell bell = make_bell(options, introduction);
    if (!door)
        introduction.fail(door.error());
    else
        std::memcpy(introduction.contact, &door->star.address(), sizeof(StarAddress));
    QCCL_TRY(const Roster roster, Roster::gather(introduction, all_gather, options.hosts));

    auto mine = prepare(introduction.shape);
    QCCL_TRY(gather_done(outcome(mine), options.size, all_gather));
    auto all = exchange(std::move(*door), std::move(*mine), roster, options);
    auto recorder = make_recorder(options, roster); // last, as what the others do without
    QCCL_TRY(gather_done(all ? outcome(recorder) : outcome(all), options.size, all_gather));

    QCCL_TRY(Party party, make_party(roster, options.rank, std::move(bell), std::move(all->near)));
    auto transport = std::make_unique<SharedTransport>(
        "shm", std::move(party), std::move(all->lifelines), roster, std::move(*recorder), options);
    if (!options.hosts.empty()) QCCL_TRY(reach_hosts(*transport, roster, options, all_gather));
    return std::unique_ptr<Transport>(std::move(transport));
}

} // namespace qccl
