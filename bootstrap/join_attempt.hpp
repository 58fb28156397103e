// One rank's attempt to join a rendezvous: how long it tries, and the sentence that tells the user
// what keeps the rank out. The rendezvous client uses it; it opens no connections itself.
#pragma once

#include "base/deadline.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/endpoint.hpp"

namespace qccl {

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

} // namespace qccl
