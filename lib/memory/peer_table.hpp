// Doorbells let a thread sleep until another thread or process wakes it; a notifier has almost no
// cost while the owner of the bell is awake. PeerTable rings them, the FailureDetector sleeps by
// them. Any thread may ring and does not block; the owner's thread alone uses its Waiter, whose
// `sleep` blocks.
//
// A notifier stores its data and then checks whether the owner sleeps. The owner announces its
// sleep and then checks whether there is data. One of the two must see the other's store, so both
// need a full fence between store and check. The notifier's fence would cost 5 to 10 % of an
// exchange of four bytes. With the kernel's expedited membarrier the sleeper pays for both fences.
//
// The ranks of one communicator as one rank sees them: every rank's segment, how to wake each rank,
// and the memory beside the segments that large calls need. Local ranks are on the same host, and
// all of them map the same segments. The segment of a remote rank is this rank's own note of what
// the remote rank has told it. PeerTable is filled while the transport is created, and used by all
// of its parts. Any thread may wake ranks.
//
// Overflow memory is what a rank has beside its segment for calls that need more than the outbox or
// the inbox holds. The rank may keep it for later calls. One OverflowMemory is one rank's view of
// one rank's memory; a rank views only memory of ranks of its own host. MemoryClaim checks that the
// ranks of a host together find the memory that they need for one large call: they allocate at the
// same instant, so that each rank alone would see enough free memory, and all of them together
// would not get it. Overflow memory and claims are used by the thread that runs the rank's calls.
// Nothing here blocks.
#pragma once

#include "base/random_names.hpp"
#include "base/result.hpp"
#include "base/shared_memory.hpp"
#include "base/system.hpp"
#include "memory/segment.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace qccl {

enum class Fences {
    both,       // each side executes its own fence
    by_sleeper, // sleepers call membarrier; all processes have called `register_fences`
};

// Lets membarrier calls of other processes fence this process from now on. Returns whether the
// kernel supports that.
bool register_fences();

// Wakes the owner of `bell`, or keeps the owner from falling asleep.
void ring(Bell &bell);

// Returns whether the owner sleeps or is about to. The caller first stores what the owner may be
// waiting for.
inline bool is_sleeper(Bell &bell, Fences fences) {
    if (fences == Fences::by_sleeper) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        return bell.is_asleep.load(std::memory_order_relaxed) != 0;
    }
    return bell.is_asleep.fetch_add(0, std::memory_order_seq_cst) != 0;
}

// A bell that its owner can poll together with other descriptors: a socket of this host with a
// random name. A process that knows the name can ring the bell, and with that do no more than wake
// its owner.
class SocketBell {
public:
    using Name = AbstractName;

    SocketBell() = default;
    static Result<SocketBell> make();
    const Name &name() const { return name_; }
    int descriptor() const { return socket_.number(); }
    bool is_open() const { return socket_.is_open(); }

    // Rings the bell with that name. Does not block.
    void ring(const Name &other) const;
    // Removes all pending rings of this bell.
    void silence() const;

private:
    FileDescriptor socket_;
    Name name_{};
};

// The owner's side of a bell. The owner prepares, checks once more, then sleeps and checks in
// turns, and at last cancels.
class Waiter {
public:
    Waiter(Bell &bell, Fences fences) : bell_(bell), fences_(fences) {}

    bool is_prepared() const { return is_prepared_; }
    void prepare();
    // Sleeps until the next ring, for at most `longest`. Returns at once if the bell has rung since
    // `prepare` or since the last `sleep`.
    void sleep(std::chrono::nanoseconds longest);
    // Sleeps until a ring of `bell`, which notifiers ring too, or until descriptor `other` becomes
    // readable, for at most `longest`.
    void sleep(std::chrono::nanoseconds longest, const SocketBell &bell, int other);
    void cancel();

private:
    Bell &bell_;
    Fences fences_;
    bool is_prepared_ = false;
    uint32_t heard_ = 0; // value of `rings` at the last check
};

// ---- Overflow memory

// Makes, maps and drops the memory.
class OverflowSource {
public:
    virtual ~OverflowSource() = default;
    // The owner makes at least `bytes` bytes, or grows the memory that it has to that size. The
    // memory is allocated at once: a lack of memory is an error here and never a SIGBUS later.
    // `still_needs` is told how many of the added bytes are yet to be allocated. After an error the
    // memory has the size that it had before.
    virtual Result<MappedMemory> make(size_t bytes, const StillNeeds &still_needs) = 0;
    // Another rank maps what the owner has by now. What this rank has mapped already stays where it
    // is, unless the memory has grown. Returns damaged_data if the owner has made nothing, or less
    // than it says.
    virtual Result<MappedMemory> find() = 0;
    // Undoes `make` or `find`. The memory that the owner has made goes back to the system.
    virtual void drop() = 0;
};

class OverflowMemory {
public:
    explicit OverflowMemory(std::unique_ptr<OverflowSource> source) : source_(std::move(source)) {}
    OverflowMemory(const OverflowMemory &) = delete;

    // See Transport::keep_overflow.
    void keep(std::function<Done(const MappedMemory &)> on_open) {
        is_kept_ = true;
        on_open_ = std::move(on_open);
    }

    // `create` is for the owner, `open` for the other ranks. Both return the errors of the source
    // and of `on_open`.
    Done create(size_t bytes, const StillNeeds &still_needs);
    Done open() { return adopt(source_->find()); }
    // Called at the end of a call. The owner closes its view when no rank reads the memory any
    // more. Memory of up to `most_kept` bytes stays open.
    void close(size_t most_kept = 0);

    // The memory as this rank has it mapped; empty while it is not mapped.
    std::span<std::byte> memory() const { return mapped_.bytes; }

private:
    Done adopt(Result<MappedMemory> memory);

    std::unique_ptr<OverflowSource> source_;
    bool is_kept_ = false;
    std::function<Done(const MappedMemory &)> on_open_;
    MappedMemory mapped_;
};

// For ranks that are threads: where other ranks find the owner's memory.
struct PlainOverflow {
    std::mutex mutex;
    FileDescriptor file;
    MappedMemory memory;
};
std::unique_ptr<OverflowMemory> view_plain_overflow(PlainOverflow &place);

// For ranks that are processes: the memory lies behind the segment in the segment's file, which
// grows for it. The owner keeps the file open. Another rank needs no descriptor, since it extends
// the mapping that it has of the segment.
std::unique_ptr<OverflowMemory> own_file_overflow(const Segment &segment, FileDescriptor file);
std::unique_ptr<OverflowMemory> view_file_overflow(const Segment &segment);

// ---- Table of all ranks

struct PeerTable {
    PeerTable(uint32_t own_rank, Fences agreed, std::vector<int64_t> all_pids)
        : rank(own_rank), fences(agreed), pids(std::move(all_pids)) {}

    uint32_t rank;
    Fences fences;
    std::vector<int64_t> pids;                              // by rank
    std::vector<Segment> segments;                          // by rank
    std::vector<std::shared_ptr<const void>> keepers;       // keep the segments' memory
    std::vector<std::unique_ptr<OverflowMemory>> overflows; // by rank; null for remote ranks
    std::vector<uint32_t> local_ranks;                      // ascending, with this rank
    std::vector<uint32_t> remote_ranks;                     // ascending
    uint64_t eager_slot_bytes = 0;
    // Set only if there are remote ranks, since a sleeping rank then waits for the network too:
    // this rank's socket bell, and the names of all ranks' socket bells, by rank.
    SocketBell bell;
    std::vector<SocketBell::Name> bells;

    uint32_t size() const { return static_cast<uint32_t>(segments.size()); }
    const Segment &mine() const { return segments[rank]; }
    bool is_local(uint32_t peer) const {
        return !has_remote() || std::binary_search(local_ranks.begin(), local_ranks.end(), peer);
    }
    bool has_remote() const { return !remote_ranks.empty(); }
    // The segment of the host's lowest rank, which holds what the host's ranks share.
    const Segment &first() const { return segments[local_ranks.front()]; }

    // Wakes the peer if it sleeps or is about to sleep.
    void wake(uint32_t peer) const {
        if (is_sleeper(segments[peer].bell(), fences)) [[unlikely]]
            ring(peer);
    }
    void wake_all() const {
        for (const uint32_t peer : local_ranks) ring(peer);
    }

private:
    void ring(uint32_t peer) const {
        qccl::ring(segments[peer].bell());
        if (bell.is_open()) bell.ring(bells[peer]);
    }
};

// ---- Claims to memory

// One rank's claim to memory, which ends with the object. The other ranks of the host see the
// claim.
class MemoryClaim {
public:
    // `free_bytes` returns the free memory of the host. Both arguments outlive the claim.
    MemoryClaim(const PeerTable &peer_table, const std::function<size_t()> &free_bytes)
        : peer_table_(peer_table), free_bytes_(free_bytes) {}
    MemoryClaim(const MemoryClaim &) = delete;
    ~MemoryClaim() { publish(0); }

    // States that this rank has yet to allocate `bytes`. A rank calls this before it allocates the
    // first of them, and again as fewer remain. Now and then this compares what all ranks of the
    // host need with what is free. If that is too little, it returns system_error with both
    // figures, and the caller frees what it has allocated.
    Done still_needs(uint64_t bytes);

private:
    void publish(uint64_t bytes) const;
    uint64_t needed_by_all() const;

    const PeerTable &peer_table_;
    const std::function<size_t()> &free_bytes_;
    uint64_t needed_ = 0;             // the most that was stated
    uint64_t look_at_ = ~uint64_t{0}; // compares again when at most this many bytes remain
};

} // namespace qccl
