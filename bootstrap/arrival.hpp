// A rank on its way into the rendezvous: how long it tries, and the one sentence that tells a
// person what keeps it out. Knows no connections.
#pragma once

#include "base/deadline.hpp"
#include "bootstrap/bootstrap.hpp"
#include "bootstrap/endpoint.hpp"

namespace qccl {

class Arrival {
public:
    // Silent, or hanging up: which of them it is may differ from one attempt to the next.
    static constexpr const char *silence = "it gives no answer";
    static constexpr const char *other_program =
        "the process listening there is another program, not a rank 0 of QCCL";
    static constexpr const char *other_secret =
        "the process listening there has another secret, or only one of the two has a secret "
        "(QCCL_SECRET_FILE must name the same content on all ranks), or it belongs to another job";

    // Who listens there is to leave the port to this rank where `wants_room` and it has no use for
    // it any more.
    Arrival(const std::vector<Endpoint> &endpoints, const RendezvousOptions &options, TimePoint now,
            bool wants_room = false);

    bool wants_room() const { return wants_room_; }

    TimePoint deadline() const { return deadline_; }
    bool is_over() const { return Clock::now() >= deadline_; }
    // No longer than this is spent at the next door; 0: as long as there is time.
    void begin_try(std::chrono::nanoseconds longest);
    // A door that somebody has opened gets the time for a talk.
    void extend_try(std::chrono::nanoseconds longest);
    bool is_try_over() const { return Clock::now() >= try_ends_; }
    // When whoever waits has to look up: at the end of the try, or to tell.
    TimePoint next_look() const { return std::min(try_ends_, tell_at_); }

    // What is in the way now.
    void note(const char *obstacle) { obstacle_ = obstacle; }
    const std::string &obstacle() const { return obstacle_; }
    bool has_met_stranger() const {
        return obstacle_ == other_program || obstacle_ == other_secret;
    }
    // Warns, once, if it is time. There is nobody who could do so for all.
    void tell();
    void tell(const char *obstacle) {
        note(obstacle);
        tell();
    }
    Error no_answer() const;
    Error no_way() const; // with the last obstacle
    // Before the time is over, because of an obstacle that stays.
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
