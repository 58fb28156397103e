// Times several calls in turns, so that other activity on the machine affects all of them alike.
// Used by qccl-perf. All ranks call it together; it blocks until all calls are timed.
#pragma once

#include "perf/run/rank_group.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace qccl::perf {

struct TimedCall {
    std::function<Done()> call;
    // Set if calls return before they are complete: waits for the calls made so far.
    std::function<Done()> finish{};
    // Restores the buffers, untimed, before every turn and then after at most `calls_per_refill`
    // calls, because repeated in-place sums grow until they overflow. 0: never within a turn.
    std::function<Done()> refill;
    uint64_t calls_per_refill = 0;
};

struct TurnOptions {
    uint32_t iterations = 20;
    uint32_t warmup_iterations = 1;
    uint32_t aggregated = 1; // calls per iteration
    uint32_t turns = 1;      // turns of each call; at most as many as iterations
    // Untimed calls at the beginning of a turn. They refill the caches that the previous call has
    // emptied and synchronize the ranks after a barrier.
    uint32_t lead_in = 0;
    bool barrier_between = false;
};

// What this rank measured: one time per iteration, divided by the calls in it.
struct Times {
    std::vector<double> us;
    std::vector<double> cpu_us;
    std::vector<double> enqueue_us; // time until a call returned, if that is before its end
};

// All ranks call this with the same number of calls in the same order.
Result<std::vector<Times>> time_in_turns(RankGroup &rank_group,
                                         std::span<const TimedCall> timed_calls,
                                         const TurnOptions &options);

} // namespace qccl::perf
