// shm: ranks are processes of one host, or threads that know nothing of each other. All see that
// they fit together, each makes its segment, all pass theirs around together with a lifeline, and
// every step that may fail is agreed on.
#include "transport/fd_star.hpp"
#include "transport/roster.hpp"
#include "transport/shared_memory.hpp"
#include "transport/shared_transport.hpp"

#include <cstring>

namespace qccl {

namespace {

static_assert(sizeof(StarAddress) <= sizeof Introduction{}.contact);

// What a rank makes before it knows of the others.
struct Door {
    FdStar star; // rank 0 only
    FdRay ray;   // the others
};

Result<Door> open_door(uint32_t rank) {
    Door door;
    if (rank == 0) {
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
    Mapping memory;
};

Result<Belongings> prepare(const SegmentShape &shape) {
    Belongings mine;
    QCCL_TRY(const size_t bytes, shape.segment_bytes());
    QCCL_TRY(mine.pair[0], create_shared_memory(bytes));
    QCCL_TRY(Lifeline lifeline, Lifeline::open());
    mine.pair[1] = std::move(lifeline.shown);
    mine.life = std::move(lifeline.held);
    QCCL_TRY(mine.memory, map_shared_memory(mine.pair[0], bytes));
    mine.memory.populate();
    Segment(mine.memory.base(), shape).format();
    return mine;
}

// Everyone's memory, mapped, by rank, and everyone's lifeline.
struct Exchanged {
    std::vector<Mapping> memories;
    Lifelines lifelines;
};

Result<Exchanged> exchange(Door door, Belongings mine, const Roster &roster,
                           const TransportOptions &options) {
    StarAddress address;
    std::memcpy(&address, roster[0].contact, sizeof address);
    auto pairs = options.rank == 0
                     ? door.star.serve(std::move(mine.pair), options.size, options.peer_timeout)
                     : door.ray.join(address, options.rank, options.size, std::move(mine.pair),
                                     options.peer_timeout);
    if (!pairs) return pairs.error();
    Exchanged all;
    const size_t bytes = mine.memory.bytes(); // everyone's: the shapes are equal
    std::vector<FileDescriptor> shown;
    for (uint32_t rank = 0; rank < options.size; rank++) {
        if (rank == options.rank) {
            all.memories.push_back(std::move(mine.memory));
        } else {
            QCCL_TRY(Mapping theirs, map_shared_memory((*pairs)[rank][0], bytes));
            all.memories.push_back(std::move(theirs));
        }
        shown.push_back(std::move((*pairs)[rank][1]));
    }
    all.lifelines = Lifelines(std::move(shown), std::move(mine.life));
    return all;
}

} // namespace

Result<std::unique_ptr<Transport>> create_shm_transport(const TransportOptions &options,
                                                        const AllGather &all_gather) {
    const SegmentShape shape{options.size, options.slots, options.line_bytes, options.outbox_bytes};
    auto door = open_door(options.rank);
    Introduction introduction;
    introduction.shape = shape;
    introduction.free_bytes = free_memory_bytes();
    if (!door)
        introduction.fail(door.error());
    else
        std::memcpy(introduction.contact, &door->star.address(), sizeof(StarAddress));
    QCCL_TRY(const Roster roster, Roster::gather(introduction, all_gather));

    auto mine = prepare(shape);
    QCCL_TRY(gather_done(outcome(mine), options.size, all_gather));
    auto all = exchange(std::move(*door), std::move(*mine), roster, options);
    QCCL_TRY(gather_done(outcome(all), options.size, all_gather));

    Party party(options.rank, roster.fences(), roster.pids());
    for (Mapping &memory : all->memories) {
        party.segments.emplace_back(memory.base(), shape);
        party.keepers.push_back(std::make_shared<Mapping>(std::move(memory)));
    }
    return std::unique_ptr<Transport>(std::make_unique<SharedTransport>(
        "shm", std::move(party), std::move(all->lifelines), roster, options));
}

} // namespace qccl
