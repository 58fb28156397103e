// Going to sleep and being woken, between threads or processes, at no cost to those who are awake.
// Knows no ranks and no reasons to wait.
//
// Whoever gives something looks whether the other sleeps, and the other, before it sleeps, looks
// whether something has been given. One of the two must see the other's store, for which both need
// a full fence between store and look. The giver's would cost 5 to 10 % of an exchange of four
// bytes; the kernel's expedited membarrier lets the sleeper pay for both.
#pragma once

#include "base/file_descriptor.hpp"
#include "transport/abstract_name.hpp"
#include "transport/segment.hpp"

#include <chrono>

namespace qccl {

enum class Fences {
    both,       // each side its own
    by_sleeper, // membarrier on behalf of all; every process has called `register_fences`
};

// Whether this process may be fenced by others' membarriers from now on.
bool register_fences();

// Wakes the owner of `bell`, or keeps it from falling asleep.
void ring(Bell &bell);

// Whether the owner sleeps or is about to. After the store that it may be waiting for.
inline bool is_sleeper(Bell &bell, Fences fences) {
    if (fences == Fences::by_sleeper) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        return bell.is_asleep.load(std::memory_order_relaxed) != 0;
    }
    return bell.is_asleep.fetch_add(0, std::memory_order_seq_cst) != 0;
}

// A bell that can be waited for together with other descriptors: a socket of this host with a
// random name. Whoever knows the name can ring it, and with that do no more than wake its owner.
class SocketBell {
public:
    using Name = AbstractName;

    SocketBell() = default;
    static Result<SocketBell> make();
    const Name &name() const { return name_; }
    int descriptor() const { return socket_.number(); }
    bool is_open() const { return socket_.is_open(); }

    void ring(const Name &other) const;
    void silence() const;

private:
    FileDescriptor socket_;
    Name name_{};
};

// The owner's side: lie_down, look once more, sleep, look, sleep, ..., get_up.
class Sleeper {
public:
    Sleeper(Bell &bell, Fences fences) : bell_(bell), fences_(fences) {}

    bool is_lying() const { return is_lying_; }
    void lie_down();
    // Until the next ring, one since the last look, or `longest`.
    void sleep(std::chrono::nanoseconds longest);
    // Likewise, by the bell that is rung too, or until `other` can be read.
    void sleep(std::chrono::nanoseconds longest, const SocketBell &bell, int other);
    void get_up();

private:
    Bell &bell_;
    Fences fences_;
    bool is_lying_ = false;
    uint32_t heard_ = 0; // rings before the last look
};

} // namespace qccl
