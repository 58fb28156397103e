// How long the thread of a GPU's queue sleeps between two looks at a stream that has not come yet.
// Used by GpuQueue; one thread.
#pragma once

#include <algorithm>
#include <chrono>

namespace qccl {

class ArrivalNaps {
public:
    using Time = std::chrono::nanoseconds;

    // A call that finds its stream idle is seen within this.
    static constexpr Time usual_spin = std::chrono::microseconds(50);

    // `spin`: how long the thread looks without sleeping; 0: not at all.
    explicit ArrivalNaps(Time spin) : spin_(spin) {}

    // After a look that came `waited` after the first one. 0: the thread looks again at once.
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
