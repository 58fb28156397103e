// Doorbells let a thread sleep until another thread or process wakes it; a notifier has almost no
// cost while the owner of the bell is awake. PeerTable rings them, the FailureDetector sleeps by
// them. Any thread may ring and does not block; the owner's thread alone uses its Waiter, whose
// `sleep` blocks.
//
// A notifier stores its data and then checks whether the owner sleeps. The owner announces its
// sleep and then checks whether there is data. One of the two must see the other's store, so both
// need a full fence between store and check. The notifier's fence would cost 5 to 10 % of an
// exchange of four bytes. With the kernel's expedited membarrier the sleeper pays for both fences.
#pragma once

#include "base/system.hpp"
#include "memory/segment.hpp"
#include "net/random_name.hpp"

#include <chrono>

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

} // namespace qccl
