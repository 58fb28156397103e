// The properties that the ranks of a shared transport exchange before it exists (a modex). They
// show that the ranks fit together and that each rank has what it needs, and they tell each rank
// what it must know about the others. Used at the creation of the shm and inproc transports.
// `gather` and `gather_done` block in the all-gather, and all ranks call them in the same order.
#pragma once

#include "memory/peer_table.hpp"
#include "memory/segment.hpp"
#include "transport/transport.hpp"

#include <sched.h>
#include <unistd.h>
#include <vector>

namespace qccl {

// Returns the shape of the segments that the options ask for.
SegmentShape shape_of(const TransportOptions &options);

// How one rank has fared in a step of creation. Travels as bytes.
struct RankOutcome {
    Error error{.code = Code::success};

    bool has_failed() const { return error.code != Code::success; }
    // Returns the error in the words in which all ranks report it.
    Done of_rank(uint32_t rank) const;
};

// The properties of one rank. Travels as bytes.
struct PeerInfo {
    static constexpr uint64_t our_magic =
        0x354D48534C434351; // "QCCLSHM5"; differs with another endianness

    uint64_t magic = our_magic;
    SegmentShape shape;
    int64_t pid = 0;
    cpu_set_t cores{};          // that the thread may run on; empty: unknown
    uint64_t machine = 0;       // hash of its boot id, which `gather` fills in; 0: unknown
    uint32_t may_be_fenced = 0; // by membarriers of other processes
    uint32_t user = geteuid();  // descriptors are passed among processes of one user only
    // Free memory in bytes, which all segments of the host share. Every rank reports the same
    // memory as it sees it.
    uint64_t free_bytes = UINT64_MAX;
    RankOutcome outcome;
    std::byte contact[64] = {}; // the transport's own data
    SocketBell::Name bell{};    // if ranks are on several hosts
    uint64_t session = 0;       // random, almost surely unique; rank 0's counts
};

class PeerInfoTable {
public:
    // Exchanges the properties of all ranks. If any rank has failed or does not fit, every rank
    // gets the same error, which names that rank. `hosts` as in TransportOptions.
    static Result<PeerInfoTable> gather(PeerInfo mine, const AllGather &all_gather,
                                        std::vector<uint32_t> hosts = {});

    const PeerInfo &operator[](uint32_t rank) const { return infos_[rank]; }
    uint32_t size() const { return static_cast<uint32_t>(infos_.size()); }

    bool is_local(uint32_t rank, uint32_t other) const {
        return hosts_.empty() || hosts_[rank] == hosts_[other];
    }
    // Returns the ranks of the rank's host, ascending, including the rank itself.
    std::vector<uint32_t> local_ranks(uint32_t rank) const;
    // Returns the lowest rank of each rank's host, by rank.
    std::vector<uint32_t> host_leaders() const;
    // Returns how the doorbells of the ranks on this rank's host are fenced.
    Fences fences(uint32_t rank) const;
    std::vector<int64_t> pids() const;
    uint64_t session() const { return infos_[0].session; }
    std::vector<SocketBell::Name> bells() const;
    // Returns whether `rank` has a core for itself, whichever cores the other ranks use.
    bool may_spin(uint32_t rank) const;
    // Returns the number of ranks per core where the most ranks share cores; at least 1.
    double ranks_per_core() const;

private:
    bool is_on_same_machine(uint32_t rank, uint32_t other) const;
    // Returns the number of ranks for each core that `rank` may run on, `rank` included. Hosts may
    // be containers of one machine, so the ranks of all hosts of the machine count. Infinite if the
    // cores are unknown.
    double oversubscription(uint32_t rank) const;

    Done check_users() const;
    Done check_memory() const;

    std::vector<PeerInfo> infos_;
    std::vector<uint32_t> hosts_; // by rank; empty: there is one host
};

// Whether `own` says that another rank has left, and `failure`, with which the ranks' all-gather
// has failed, names a third one, for whose loss that rank may have left.
bool may_explain(const Error &failure, const Error &own);
// Tells all ranks whether this rank has succeeded. If any rank has not, every rank returns the
// error of the lowest such rank.
Done gather_done(const Done &mine, uint32_t size, const AllGather &all_gather);

} // namespace qccl
