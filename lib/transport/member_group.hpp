// A group of ranks of a communicator that meets outside the communicator's calls, and how its
// members wait for each other. Used by SurvivorExchange, and by the split and the shrink of
// communicators. A wait belongs to one thread, which sleeps in it.
#pragma once

#include "transport/peer_table.hpp"

#include <chrono>
#include <functional>
#include <optional>

namespace qccl {

struct MemberGroup {
    uint64_t topic = 0;                    // no other group of the communicator has the same
    std::vector<uint32_t> members{};       // in the order in which they give and receive
    std::chrono::nanoseconds timeout{};    // of one wait; 0 means no limit
    const char *what = "";                 // the caller's function: "qcclCommShrink"
    std::function<bool()> is_called_off{}; // by another thread of this rank; may be empty
    // Whether a call of this rank has returned the communicator's failure, if it has failed.
    bool is_failure_known = false;
    uint64_t round = 0; // exchanges begun so far
};

// When a wait warns and fails, and how.
struct WaitWarning {
    std::chrono::nanoseconds warn_after{};
    std::function<void(const char *sentence)> warn; // may be empty
    // Bounds the wait for a rank that ignores the communicator's failure.
    std::chrono::nanoseconds peer_timeout{};
    // Both fail the communicator. `mismatch` is for a rank that has begun a call which this rank
    // has not made.
    std::function<Error(uint64_t call)> mismatch{};
    std::function<void(const Error &error)> fail{};
};

// What one look at the members has found.
struct ArrivalState {
    std::optional<uint32_t> missing; // the lowest member that has not come
    bool is_led = false;             // a member that has come is lower than this rank

    void miss(uint32_t member) { missing = std::min(missing.value_or(member), member); }
    void meet(uint32_t member, uint32_t own_rank) { is_led |= member < own_rank; }
};

// One wait, which begins now.
class GroupWait {
public:
    GroupWait(const PeerTable &peer_table, const MemberGroup &group, const WaitWarning &warning)
        : peer_table_(peer_table), group_(group), warning_(warning) {}

    // Sleeps for a moment. Returns timeout if the wait has lasted too long, and invalid_usage if
    // another thread ends the communicator. Before a timeout, a rank that is not led warns for all.
    Done step(const ArrivalState &found);

private:
    using Clock = std::chrono::steady_clock;

    std::chrono::nanoseconds timeout_for(uint32_t member) const;

    const PeerTable &peer_table_;
    const MemberGroup &group_;
    const WaitWarning &warning_;
    const Clock::time_point began_ = Clock::now();
    std::chrono::nanoseconds nap_{};
    bool has_warned_ = false;
};

} // namespace qccl
