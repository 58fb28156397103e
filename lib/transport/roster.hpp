// What the ranks of a shared transport tell each other before they have one: that they fit
// together, that each has what it needs, and what each must know of the others. Knows no memory.
#pragma once

#include "transport/doorbell.hpp"
#include "transport/segment.hpp"

#include <sched.h>
#include <unistd.h>
#include <vector>

namespace qccl {

// Of the segments that the options ask for.
SegmentShape shape_of(const TransportOptions &options);

// One rank's introduction of itself. Travels as bytes.
struct Introduction {
    static constexpr uint64_t our_magic =
        0x344D48534C434351; // "QCCLSHM4"; another endianness reads another

    uint64_t magic = our_magic;
    SegmentShape shape;
    int64_t pid = 0;
    cpu_set_t cores{};          // that this thread may run on
    uint64_t machine = 0;       // a hash of its boot id, which gather() fills in; 0: unknown
    uint32_t may_be_fenced = 0; // by membarriers of others
    uint32_t user = geteuid();  // descriptors are passed among processes of one user only
    // That all segments have to share; everyone's is the same memory, looked at by each.
    uint64_t free_bytes = UINT64_MAX;
    uint64_t has_failed = 0;
    Error failure;              // if so
    std::byte contact[64] = {}; // the transport's own
    SocketBell::Name bell{};    // where ranks are on several hosts
    uint64_t session = 0;       // a number that hardly any other communicator has: rank 0's counts

    void fail(const Error &error) {
        has_failed = 1;
        failure = error;
    }
};

class Roster {
public:
    // Tells everyone about this rank and hears about everyone. If any rank has failed or does not
    // fit, every rank gets the same error, which names it. `hosts` as in TransportOptions.
    static Result<Roster> gather(Introduction mine, const AllGather &all_gather,
                                 std::vector<uint32_t> hosts = {});

    const Introduction &operator[](uint32_t rank) const { return introductions_[rank]; }
    uint32_t size() const { return static_cast<uint32_t>(introductions_.size()); }

    bool is_near(uint32_t rank, uint32_t other) const {
        return hosts_.empty() || hosts_[rank] == hosts_[other];
    }
    std::vector<uint32_t> near_ranks(uint32_t rank) const;
    // The lowest rank of each rank's host.
    std::vector<uint32_t> firsts() const;
    // Of the ranks that are near this one.
    Fences fences(uint32_t rank) const;
    std::vector<int64_t> pids() const;
    uint64_t session() const { return introductions_[0].session; }
    std::vector<SocketBell::Name> bells() const;
    // Whether `rank` has a core for itself, whatever the others do with theirs.
    bool may_spin(uint32_t rank) const;
    // Where most ranks share cores: how many of them there are for each. At least 1.
    double ranks_per_core() const;

private:
    bool is_on_same_machine(uint32_t rank, uint32_t other) const;
    // Ranks, this one among them, for each core that it may run on. Hosts may be containers of one
    // machine, whose ranks share its cores. Infinite where the cores are unknown.
    double crowding(uint32_t rank) const;

    Done check_users() const;
    Done check_memory() const;

    std::vector<Introduction> introductions_;
    std::vector<uint32_t> hosts_; // by rank, or empty
};

// Tells everyone whether this rank has come through; if any has not, everyone fails with the lowest
// such rank's error.
Done gather_done(const Done &mine, uint32_t size, const AllGather &all_gather);

} // namespace qccl
