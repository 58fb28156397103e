// Who takes part in a rendezvous and how far they are: joins, all-gathers, departures, deadlines.
// Knows no sockets and no clock; the server feeds it and tells the ranks what follows.
#pragma once

#include "base/deadline.hpp"
#include "bootstrap/handshake.hpp"
#include "bootstrap/round.hpp"

#include <optional>
#include <string>

namespace qccl {

// A rank's part of one all-gather and the whole of it: what creation exchanges is far smaller.
inline constexpr size_t most_contributed_bytes = 1 << 20;
inline constexpr size_t most_gathered_bytes = 256 << 20;
// No job is larger; a number beyond it is an argument that went wrong.
inline constexpr uint32_t most_ranks = 1 << 16;

class Assembly {
public:
    Assembly(TimePoint now, std::chrono::nanoseconds timeout)
        : timeout_(timeout), deadline_(deadline_after(now, timeout)) {}

    // An error refuses the newcomer. While ranks are still missing it also fails them all.
    Done join(const Claim &claim, const std::string &where);
    // Whether it is that rank's process that has joined, and not another.
    bool has_member(const Claim &claim) const;
    bool is_complete() const { return joined_ > 0 && joined_ == size_; }

    void contribute(uint32_t rank, std::span<const std::byte> mine, TimePoint now);
    // What the last of the ranks to contribute has made complete; else nothing.
    Payload take_result();

    enum class Farewell : uint8_t { leave, give_up, none };
    void depart(uint32_t rank, Farewell farewell);
    bool is_over() const { return is_complete() && departed_ == size_; }

    // By whom we are kept waiting.
    Missing missing() const;
    // Whether this rank is the one of those that wait that tells a person: once for each wait.
    bool elect(uint32_t rank);
    TimePoint deadline() const { return deadline_; }
    void expire(TimePoint now);
    // Those who have not come cannot come.
    void abandon(const Error &error) {
        if (!is_complete()) fail(error);
    }

    // Once there is one, nothing but departures changes anything.
    const std::optional<Error> &failure() const { return failure_; }

private:
    void fail(const Error &error) {
        if (!failure_) failure_ = error;
    }
    std::optional<Error> objection(const Claim &claim, const std::string &where) const;
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
    uint32_t first_ = 0; // the rank that said the size first
    std::vector<bool> has_joined_;
    std::vector<std::string> where_;
    std::vector<Claim> claims_;
    std::vector<bool> has_departed_;
    bool has_elected_ = false; // for the wait at hand
    std::optional<Round> round_;
    std::optional<Error> failure_;
};

} // namespace qccl
