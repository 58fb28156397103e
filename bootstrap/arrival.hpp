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

    Arrival(const Endpoint &endpoint, const RendezvousOptions &options, TimePoint now);

    TimePoint deadline() const { return deadline_; }
    bool is_over() const { return Clock::now() >= deadline_; }
    // When whoever waits has to look up: at the deadline, or to tell.
    TimePoint next_look() const { return std::min(deadline_, tell_at_); }
    // Warns, once, if it is time. There is nobody who could do so for all.
    void tell(const char *obstacle);
    Error no_answer() const;

private:
    const Endpoint endpoint_;
    const RendezvousOptions &options_;
    const TimePoint deadline_;
    TimePoint tell_at_;
};

} // namespace qccl
