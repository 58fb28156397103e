// How long the thread of a GPU stream queue sleeps between two polls of a stream that has not
// reached a call yet. Used by GpuStreamQueue, by one thread; the caller does the sleeping.
#pragma once

#include <algorithm>
#include <chrono>

namespace qccl {

class ArrivalNaps {
public:
    using Time = std::chrono::nanoseconds;

    // The usual spin. A call on an idle stream arrives within this time, so the thread notices it
    // without sleeping.
    static constexpr Time usual_spin = std::chrono::microseconds(50);

    // `spin`: how long the thread polls without sleeping; 0: it sleeps after every poll.
    explicit ArrivalNaps(Time spin) : spin_(spin) {}

    // Returns how long to sleep after a poll; 0: poll again at once. `waited` is the time since the
    // first poll.
    Time next(Time waited) {
        if (waited < spin_) return {};
        const Time nap = nap_;
        nap_ = std::min(2 * nap_, longest);
        return nap;
    }

private:
    static constexpr Time shortest = std::chrono::microseconds(5);
    static constexpr Time longest = std::chrono::microseconds(50);

    Time spin_;
    Time nap_ = shortest;
};

} // namespace qccl
