// Going to sleep and being woken, between threads or processes, at no cost to those who are awake.
// Knows no ranks and no reasons to wait.
//
// Whoever gives something looks whether the other sleeps, and the other, before it sleeps, looks
// whether something has been given. One of the two must see the other's store, for which both need
// a full fence between store and look. The giver's would cost 5 to 10 % of an exchange of four
// bytes; the kernel's expedited membarrier lets the sleeper pay for both.
#pragma once

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

// Rings if the owner sleeps or is about to. After the store that it may be waiting for.
inline void ring_sleeper(Bell &bell, Fences fences) {
    uint32_t asleep;
    if (fences == Fences::by_sleeper) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
        asleep = bell.is_asleep.load(std::memory_order_relaxed);
    } else {
        asleep = bell.is_asleep.fetch_add(0, std::memory_order_seq_cst);
    }
    if (asleep) [[unlikely]]
        ring(bell);
}

// The owner's side: lie_down, look once more, sleep, look, sleep, ..., get_up.
class Sleeper {
public:
    Sleeper(Bell &bell, Fences fences) : bell_(bell), fences_(fences) {}

    bool is_lying() const { return is_lying_; }
    void lie_down();
    // Until the next ring, one since the last look, or `longest`.
    void sleep(std::chrono::nanoseconds longest);
    void get_up();

private:
    Bell &bell_;
    Fences fences_;
    bool is_lying_ = false;
    uint32_t heard_ = 0; // rings before the last look
};

} // namespace qccl
