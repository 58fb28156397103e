// The first part of a rank's side of the rendezvous: the attempt to join (how long it lasts, and
// the sentence that tells the user what keeps the rank out) and the handshake with the server
// (connect, check that the server holds the secret, prove the same). join_rendezvous() and
// ask_for_room() use it. JoinAttempt opens no connection and does not block; introduce() and
// wait_until() block, at most until the attempt's deadline. One thread at a time may use an
// attempt.
#pragma once

#include "base/clock.hpp"
#include "bootstrap/bootstraps.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/rendezvous_protocol.hpp"
#include "net/interfaces.hpp"

namespace qccl {

// ---- Attempt to join

class JoinAttempt {
public:
    // The server is silent or hangs up; which of the two may differ from one try to the next.
    static constexpr const char *silence = "it gives no answer";
    static constexpr const char *other_program =
        "the process listening there is another program, not a rank 0 of QCCL";
    static constexpr const char *other_secret =
        "the process listening there has another secret, or only one of the two has a secret "
        "(QCCL_SECRET_FILE must name the same content on all ranks), or it belongs to another job";

    // With `wants_room`, asks the process that listens there to leave the port to this rank once
    // that process no longer needs it. Keeps a reference to `options`.
    JoinAttempt(const std::vector<Endpoint> &endpoints, const RendezvousOptions &options,
                TimePoint now, bool wants_room = false);

    bool wants_room() const { return wants_room_; }

    TimePoint deadline() const { return deadline_; }
    bool is_over() const { return Clock::now() >= deadline_; }
    // Bounds the time spent at the next endpoint; 0: all the time that is left.
    void begin_try(std::chrono::nanoseconds longest);
    // Gives an endpoint that has accepted the connection the time for a handshake.
    void extend_try(std::chrono::nanoseconds longest);
    bool is_try_over() const { return Clock::now() >= try_ends_; }
    // When a waiting caller must wake up: at the end of the try, or to warn.
    TimePoint next_look() const { return std::min(try_ends_, tell_at_); }

    // Sets what keeps the rank out at the moment.
    void note(const char *obstacle) { obstacle_ = obstacle; }
    const std::string &obstacle() const { return obstacle_; }
    bool has_met_stranger() const {
        return obstacle_ == other_program || obstacle_ == other_secret;
    }
    // Warns once, when warn_after has passed. Each rank warns for itself: it has no server yet that
    // could choose one rank to warn for all.
    void tell();
    void tell(const char *obstacle) {
        note(obstacle);
        tell();
    }
    Error no_answer() const;
    Error no_way() const; // names the last obstacle
    // For an obstacle that stays, before the time is over.
    Error no_way(const std::string &lasting_obstacle) const;

private:
    const std::string where_;
    const RendezvousOptions &options_;
    const TimePoint deadline_;
    const bool wants_room_;
    TimePoint try_ends_;
    TimePoint tell_at_;
    std::string obstacle_;
};

// ---- Handshake with the server

struct AuthenticatedChannel {
    Channel channel;
    Session session;
};

// Connects to `endpoint` and performs the handshake. Returns nothing if the server hung up before
// it had checked the rank, as it does to the oldest connection when very many arrive. Success does
// not mean yet that the server has accepted the proof. Errors: peer_lost if no process listens
// there or if the listener does not hold the secret, timeout, invalid_argument if the server has
// another version.
Result<std::optional<AuthenticatedChannel>>
introduce(const Endpoint &endpoint, const Secret &secret, const Claim &claim, JoinAttempt &attempt);

// Sleeps until the channel is readable, can send what is queued, or the deadline has passed.
void wait_until(const Channel &channel, TimePoint deadline);

} // namespace qccl
