// Times several contestants in turns, so that whatever else the machine does meets all of them
// alike. Knows nothing of what they do.
#pragma once

#include "perf/crew.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace qccl::perf {

struct Contestant {
    std::function<Done()> call;
    // Where calls return before they are done: waits for those that were made.
    std::function<Done()> finish{};
    // Puts the buffers back to what they were. Done untimed, before every turn and then after at
    // most so many calls: repeated sums in place grow until they overflow. 0: never within a turn.
    std::function<Done()> refill;
    uint64_t calls_per_refill = 0;
};

struct TurnOptions {
    uint32_t iterations = 20;
    uint32_t warmup_iterations = 1;
    uint32_t aggregated = 1; // calls in an iteration
    uint32_t turns = 1;      // of each contestant; at most as many as there are iterations
    // Untimed calls at the beginning of a turn: they bring back the caches that the one before has
    // emptied, and ranks out of a barrier into step.
    uint32_t lead_in = 0;
    bool barrier_between = false;
};

// What this rank saw; one time per iteration, per call.
struct Times {
    std::vector<double> us;
    std::vector<double> cpu_us;
    std::vector<double> enqueue_us; // until the call returned, where that is not all
};

// Every rank calls this with as many contestants in the same order.
Result<std::vector<Times>> time_in_turns(Crew &crew, std::span<const Contestant> contestants,
                                         const TurnOptions &options);

} // namespace qccl::perf
