// Reads both clocks and interpolates between the readings.
#include "trace/tick_clock.hpp"

#include "base/ticks.hpp"

#include <algorithm>
#include <iterator>

#include <time.h>

namespace qccl {

static int64_t now_ns(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Takes the best of a few tries: the thread may lose its core between the two clocks.
TickClock::Look TickClock::look_at_both() {
    Look best;
    uint64_t least = UINT64_MAX;
    for (int tries = 0; tries < 4; tries++) {
        const uint64_t before = ticks_now();
        const int64_t ns = now_ns(CLOCK_MONOTONIC);
        const uint64_t passed = ticks_now() - before;
        if (passed >= least) continue;
        least = passed;
        best = {before + passed / 2, ns};
    }
    return best;
}

TickClock::TickClock() : realtime_offset_(now_ns(CLOCK_REALTIME) - now_ns(CLOCK_MONOTONIC)) {
    looks_.push_back(look_at_both());
    look();
    first_ = second_ = looks_.front();
}

void TickClock::look() {
    Look now = look_at_both();
    now.ticks = std::max(now.ticks, looks_.back().ticks + 1);
    now.ns = std::max(now.ns, looks_.back().ns);
    looks_.push_back(now);
    if (looks_.size() > most_looks) looks_.pop_front();
}

int64_t TickClock::to_ns(uint64_t ticks) {
    if (ticks < first_.ticks || ticks >= second_.ticks) {
        auto next =
            std::upper_bound(looks_.begin(), looks_.end(), ticks,
                             [](uint64_t wanted, const Look &look) { return wanted < look.ticks; });
        next = std::clamp(next, std::next(looks_.begin()), std::prev(looks_.end()));
        first_ = *std::prev(next);
        second_ = *next;
        ns_per_tick_ = static_cast<double>(second_.ns - first_.ns) /
                       static_cast<double>(second_.ticks - first_.ticks);
    }
    const auto passed = static_cast<double>(static_cast<int64_t>(ticks - first_.ticks));
    return realtime_offset_ + first_.ns + static_cast<int64_t>(passed * ns_per_tick_);
}

} // namespace qccl
