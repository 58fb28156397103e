// The state of a rendezvous: which ranks take part and how far they are (joins, all-gathers,
// departures, deadlines). The server feeds it events and tells the ranks what follows. It does no
// I/O and reads no clock; only the server's thread uses it.
#pragma once

#include "base/deadline.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/round.hpp"

#include <optional>
#include <string>

namespace qccl {

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
