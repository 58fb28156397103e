// Converts ticks of the processor into the time of day. Between two readings of both clocks all
// ticks count as equally long. Used only by the trace's thread; does not block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

namespace qccl {

class TickClock {
public:
    TickClock();

    // Reads both clocks. Ticks before the latest reading are converted exactly, later ticks by the
    // rate before that reading.
    void look();
    // Returns CLOCK_REALTIME; its offset to the clock that never jumps is fixed when this object is
    // created.
    int64_t to_ns(uint64_t ticks);

private:
    struct Look {
        uint64_t ticks = 0;
        int64_t ns = 0;
    };
    static Look look_at_both();

    static constexpr size_t most_looks = 4096; // older ticks are converted by the oldest rate
    int64_t realtime_offset_ = 0;
    std::deque<Look> looks_; // at least two
    // The readings before and after the last converted ticks.
    Look first_, second_;
    double ns_per_tick_ = 0;
};

} // namespace qccl
