// The state of a rendezvous: which ranks take part and how far they are (joins, all-gathers,
// departures, deadlines), with the bytes of the all-gather in progress and the names of the missing
// ranks for warnings and errors. The server feeds RendezvousState events and tells the ranks what
// follows; the local bootstrap uses Round alone. Nothing here does I/O, reads a clock or takes a
// lock; one thread at a time may use an object.
#pragma once

#include "base/clock.hpp"
#include "base/result.hpp"
#include "bootstrap/rendezvous_protocol.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl {

// ---- Missing ranks

struct Missing {
    int32_t first = Error::no_rank;
    std::string text; // "rank 3", "ranks 1, 4 and 5", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 92 more"
};

// `came`: by rank, whether it has come.
Missing missing_ranks(const std::vector<bool> &came);
// Returns the lowest rank that has come. At least one rank must have come.
uint32_t lowest_rank(const std::vector<bool> &came);

Error late_error(const Missing &missing, uint32_t size, std::chrono::nanoseconds timeout);

// ---- One all-gather

using Payload = std::shared_ptr<const std::vector<std::byte>>;

class Round {
public:
    explicit Round(uint32_t size) : came_(size) {}

    // Adds a rank's bytes. Refuses a rank that gives another number of bytes than the first one
    // (mismatch), and one that gives twice (invalid_usage).
    Done add(uint32_t rank, std::span<const std::byte> mine);

    bool has_begun() const { return count_ > 0; }
    bool is_complete() const { return count_ == came_.size(); }
    Missing missing() const { return missing_ranks(came_); }
    uint32_t first() const { return first_; } // the rank that began the round
    uint32_t lowest() const { return lowest_rank(came_); }
    // Returns the complete round's bytes in rank order; the next round begins.
    Payload take();

private:
    std::vector<bool> came_;
    std::vector<std::byte> gathered_;
    uint32_t first_ = 0;
    size_t bytes_ = 0;
    size_t count_ = 0;
};

// ---- The whole rendezvous

// Limits of a rank's part of one all-gather and of the whole; creation exchanges far less.
inline constexpr size_t most_contributed_bytes = 1 << 20;
inline constexpr size_t most_gathered_bytes = 256 << 20;
// No job is larger; a larger number is a wrong argument.
inline constexpr uint32_t most_ranks = 1 << 16;

class RendezvousState {
public:
    RendezvousState(TimePoint now, std::chrono::nanoseconds timeout)
        : timeout_(timeout), deadline_(deadline_after(now, timeout)) {}

    // Adds a rank; `where` says in messages where its process is. An error refuses that rank. While
    // ranks are still missing, the error also fails all others.
    Done join(const Claim &claim, const std::string &where);
    // Whether the process of this claim, and not another one, has joined as its rank.
    bool has_member(const Claim &claim) const;
    bool is_complete() const { return joined_ > 0 && joined_ == size_; }

    void contribute(uint32_t rank, std::span<const std::byte> mine, TimePoint now);
    // Returns the result if the last contribution has completed an all-gather; otherwise null.
    Payload take_result();

    enum class Farewell : uint8_t { leave, give_up, none };
    void depart(uint32_t rank, Farewell farewell);
    bool is_over() const { return is_complete() && departed_ == size_; }

    // Returns the ranks that the others wait for.
    Missing missing() const;
    // Whether this rank is the one of the waiting ranks that warns the user; true once for each
    // wait.
    bool elect(uint32_t rank);
    TimePoint deadline() const { return deadline_; }
    void expire(TimePoint now);
    // The missing ranks cannot come: fails the rendezvous if it is not complete.
    void abandon(const Error &error) {
        if (!is_complete()) fail(error);
    }

    // Once there is a failure, only departures change the state.
    const std::optional<Error> &failure() const { return failure_; }

private:
    void fail(const Error &error) {
        if (!failure_) failure_ = error;
    }
    std::optional<Error> refusal(const Claim &claim, const std::string &where) const;
    void check_for_departed();
    void end_wait() {
        deadline_ = TimePoint::max();
        has_elected_ = false;
    }
    bool is_in_round() const { return is_complete() && round_->has_begun(); }

    std::chrono::nanoseconds timeout_;
    TimePoint deadline_;
    uint32_t size_ = 0;
    uint32_t joined_ = 0;
    uint32_t departed_ = 0;
    uint32_t first_ = 0; // the first rank to join, which set the size
    std::vector<bool> has_joined_;
    std::vector<std::string> where_;
    std::vector<Claim> claims_;
    std::vector<bool> has_departed_;
    bool has_elected_ = false; // for the current wait
    std::optional<Round> round_;
    std::optional<Error> failure_;
};

} // namespace qccl
