// Some ranks of a communicator that have come together beside its calls, and how they wait for each
// other. Knows not for what.
#pragma once

#include "transport/party.hpp"

#include <chrono>
#include <functional>
#include <optional>

namespace qccl {

struct Circle {
    uint64_t topic = 0;                    // no other circle of the communicator has the same
    std::vector<uint32_t> members{};       // in the order in which they give and get
    std::chrono::nanoseconds timeout{};    // of one wait; 0: never
    const char *what = "";                 // as the caller calls it: "qcclCommShrink"
    std::function<bool()> is_called_off{}; // by another thread of this rank; may be empty
    // A call of this rank has returned the failure of the communicator, if it has failed.
    bool is_failure_known = false;
    uint64_t round = 0; // exchanges that have begun
};

struct CircleManners {
    std::chrono::nanoseconds warn_after{};
    std::function<void(const char *sentence)> warn; // may be empty
    // For a rank that ignores the failure of the communicator.
    std::chrono::nanoseconds peer_timeout{};
    // Both fail the communicator; the first because a rank has begun a call that is not this
    // rank's.
    std::function<Error(uint64_t call)> mismatch{};
    std::function<void(const Error &error)> fail{};
};

// What a look at the members has shown.
struct Attendance {
    std::optional<uint32_t> missing; // the lowest that has not come
    bool is_led = false;             // somebody who has come is lower than this rank

    void miss(uint32_t member) { missing = std::min(missing.value_or(member), member); }
    void meet(uint32_t member, uint32_t own_rank) { is_led |= member < own_rank; }
};

// One wait, from now on.
class CircleWait {
public:
    CircleWait(const Party &party, const Circle &circle, const CircleManners &manners)
        : party_(party), circle_(circle), manners_(manners) {}

    // Naps. An error where it has lasted too long; who is not led warns for all before.
    Done step(const Attendance &found);

private:
    using Clock = std::chrono::steady_clock;

    std::chrono::nanoseconds timeout_for(uint32_t member) const;

    const Party &party_;
    const Circle &circle_;
    const CircleManners &manners_;
    const Clock::time_point began_ = Clock::now();
    std::chrono::nanoseconds nap_{};
    bool has_warned_ = false;
};

} // namespace qccl
