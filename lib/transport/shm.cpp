// shm: ranks are processes of one host, or threads that know nothing of each other. Each makes its
// segment, all pass theirs around together with a pidfd, and every step that may fail is agreed on.
#include "transport/fd_star.hpp"
#include "transport/roster.hpp"
#include "transport/shared_memory.hpp"
#include "transport/shared_transport.hpp"

#include <cerrno>
#include <cstring>
#include <sys/syscall.h>

namespace qccl {

namespace {

static_assert(sizeof(StarAddress) <= sizeof Introduction{}.contact);

// What a rank makes before it knows of the others.
struct Belongings {
    FdPair pair; // memory, pidfd
    Mapping memory;
    FdStar star; // rank 0 only
};

Result<FileDescriptor> open_own_pidfd() {
    FileDescriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    if (!pidfd.is_open())
        return Error::make(Code::system_error, "cannot open a pidfd (Linux 5.3 has them): %s",
                           std::strerror(errno));
    return pidfd;
}

Result<Belongings> prepare(const SegmentShape &shape, uint32_t rank) {
    Belongings mine;
    const size_t bytes = shape.segment_bytes();
    QCCL_TRY(mine.pair[0], create_shared_memory(bytes));
    QCCL_TRY(mine.pair[1], open_own_pidfd());
    QCCL_TRY(mine.memory, map_shared_memory(mine.pair[0], bytes));
    mine.memory.populate();
    Segment(mine.memory.base(), shape).format();
    if (rank == 0) {
        QCCL_TRY(mine.star, FdStar::open());
    }
    return mine;
}

// Everyone's memory, mapped, and everyone's pidfd, by rank.
struct Exchanged {
    std::vector<Mapping> memories;
    std::vector<FileDescriptor> pidfds;
};

Result<Exchanged> exchange(Belongings mine, const Roster &roster, const TransportOptions &options) {
    StarAddress address;
    std::memcpy(&address, roster[0].contact, sizeof address);
    auto pairs = options.rank == 0
                     ? mine.star.serve(std::move(mine.pair), options.size, options.peer_timeout)
                     : join_fd_star(address, options.rank, options.size, std::move(mine.pair),
                                    options.peer_timeout);
    if (!pairs) return pairs.error();
    Exchanged all;
    for (uint32_t rank = 0; rank < options.size; rank++) {
        if (rank == options.rank) {
            all.memories.push_back(std::move(mine.memory));
        } else {
            QCCL_TRY(Mapping theirs,
                     map_shared_memory((*pairs)[rank][0], roster[0].shape.segment_bytes()));
            all.memories.push_back(std::move(theirs));
        }
        all.pidfds.push_back(std::move((*pairs)[rank][1]));
    }
    return all;
}

} // namespace

Result<std::unique_ptr<Transport>> create_shm_transport(const TransportOptions &options,
                                                        const AllGather &all_gather) {
    const SegmentShape shape{options.size, options.slots, options.line_bytes, options.outbox_bytes};
    auto mine = prepare(shape, options.rank);
    Introduction introduction;
    introduction.shape = shape;
    if (!mine)
        introduction.fail(mine.error());
    else
        std::memcpy(introduction.contact, &mine->star.address(), sizeof(StarAddress));
    QCCL_TRY(const Roster roster, Roster::gather(introduction, options.rank, all_gather));

    auto all = exchange(std::move(*mine), roster, options);
    QCCL_TRY(gather_done(all ? Done() : Done(all.error()), options.size, all_gather));

    Party party(options.rank, roster.fences(), roster.pids());
    for (Mapping &memory : all->memories) {
        party.segments.emplace_back(memory.base(), shape);
        party.keepers.push_back(std::make_shared<Mapping>(std::move(memory)));
    }
    return std::unique_ptr<Transport>(std::make_unique<SharedTransport>(
        "shm", std::move(party), Lifelines(std::move(all->pidfds)), roster, options));
}

} // namespace qccl
