// Implements interleaved_timing.hpp: splits the iterations into turns, and turns into stretches
// between refills.
#include "perf/run/interleaved_timing.hpp"

#include <algorithm>

#include <time.h>

namespace qccl::perf {

static double now_us(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

static Done call_often(const TimedCall &timed_call, uint32_t times) {
    for (uint32_t i = 0; i < times; i++) QCCL_TRY(timed_call.call());
    return {};
}

static Done call_to_the_end(const TimedCall &timed_call, uint32_t times) {
    QCCL_TRY(call_often(timed_call, times));
    return timed_call.finish ? timed_call.finish() : Done();
}

// Untimed calls, then timed iterations until the buffers must be refilled.
struct Stretch {
    uint32_t lead_in;
    uint32_t iterations;
};

static Stretch next_stretch(const TimedCall &timed_call, uint32_t left,
                            const TurnOptions &options) {
    const uint64_t allowed = timed_call.calls_per_refill;
    if (allowed == 0) return {options.lead_in, left};
    const uint32_t lead_in = allowed > options.lead_in + options.aggregated ? options.lead_in : 0;
    const uint64_t iterations = (allowed - lead_in) / options.aggregated;
    return {lead_in, static_cast<uint32_t>(std::clamp<uint64_t>(iterations, 1, left))};
}

static Done refill_together(RankGroup &rank_group, const TimedCall &timed_call) {
    QCCL_TRY(timed_call.refill());
    return rank_group.barrier();
}

// Without a barrier in between, the end of one iteration is the beginning of the next, so each
// iteration reads the clock once and no time between them is lost.
static Done run_stretch(RankGroup &rank_group, const TimedCall &timed_call, uint32_t iterations,
                        const TurnOptions &options, Times &times) {
    const double first_cpu = now_us(CLOCK_THREAD_CPUTIME_ID);
    double begin = now_us(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < iterations; i++) {
        QCCL_TRY(call_often(timed_call, options.aggregated));
        if (timed_call.finish) {
            times.enqueue_us.push_back((now_us(CLOCK_MONOTONIC) - begin) / options.aggregated);
            QCCL_TRY(timed_call.finish());
        }
        const double end = now_us(CLOCK_MONOTONIC);
        times.us.push_back((end - begin) / options.aggregated);
        begin = end;
        if (!options.barrier_between) continue;
        QCCL_TRY(rank_group.barrier());
        begin = now_us(CLOCK_MONOTONIC);
    }
    // This clock is read once for all iterations, because reading it is a system call, which is
    // slower than a small collective.
    const double each =
        (now_us(CLOCK_THREAD_CPUTIME_ID) - first_cpu) / (iterations * options.aggregated);
    times.cpu_us.insert(times.cpu_us.end(), iterations, each);
    return {};
}

static Done take_turn(RankGroup &rank_group, const TimedCall &timed_call, uint32_t iterations,
                      const TurnOptions &options, Times &times) {
    for (uint32_t left = iterations; left > 0;) {
        const Stretch stretch = next_stretch(timed_call, left, options);
        QCCL_TRY(refill_together(rank_group, timed_call));
        QCCL_TRY(call_to_the_end(timed_call, stretch.lead_in));
        QCCL_TRY(run_stretch(rank_group, timed_call, stretch.iterations, options, times));
        left -= stretch.iterations;
    }
    return {};
}

static Done warm_up(RankGroup &rank_group, const TimedCall &timed_call,
                    const TurnOptions &options) {
    const uint64_t all = options.warmup_iterations;
    const uint64_t stretch = timed_call.calls_per_refill == 0 ? all : timed_call.calls_per_refill;
    for (uint64_t done = 0; done < all; done += stretch) {
        QCCL_TRY(refill_together(rank_group, timed_call));
        QCCL_TRY(call_to_the_end(timed_call, static_cast<uint32_t>(std::min(stretch, all - done))));
    }
    return {};
}

Result<std::vector<Times>> time_in_turns(RankGroup &rank_group,
                                         std::span<const TimedCall> timed_calls,
                                         const TurnOptions &options) {
    std::vector<Times> times(timed_calls.size());
    for (Times &one : times) {
        one.us.reserve(options.iterations);
        one.cpu_us.reserve(options.iterations);
    }
    for (const TimedCall &timed_call : timed_calls)
        QCCL_TRY(warm_up(rank_group, timed_call, options));

    const uint32_t turns = std::clamp<uint32_t>(options.turns, 1, options.iterations);
    for (uint32_t turn = 0; turn < turns; turn++) {
        const uint64_t all = options.iterations;
        const auto begin = static_cast<uint32_t>(all * turn / turns);
        const auto end = static_cast<uint32_t>(all * (turn + 1) / turns);
        for (size_t i = 0; i < timed_calls.size(); i++)
            QCCL_TRY(take_turn(rank_group, timed_calls[i], end - begin, options, times[i]));
    }
    return times;
}

} // namespace qccl::perf
