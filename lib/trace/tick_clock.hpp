// Turns ticks of the processor into the time of day. Between two looks at both clocks ticks count
// as equally long. Used by the trace's thread alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace qccl {

class TickClock {
public:
    TickClock();

    // Looks at both clocks. Ticks before the latest look are converted exactly, ticks after it by
    // the rate before it.
    void look();
    // CLOCK_REALTIME, as it stood to the clock that never jumps when this object was made.
    int64_t to_ns(uint64_t ticks);

private:
    struct Look {
        uint64_t ticks = 0;
        int64_t ns = 0;
    };
    static Look look_at_both();

    static constexpr size_t most_looks = 4096; // older ticks are converted by the oldest rate
    int64_t realtime_offset_ = 0;
    std::deque<Look> looks_; // two at least
    // Between the looks that the last ticks lay between.
    Look first_, second_;
    double ns_per_tick_ = 0;
};

} // namespace qccl
