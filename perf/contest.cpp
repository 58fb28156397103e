#include "perf/contest.hpp"

#include <algorithm>

#include <time.h>

namespace qccl::perf {

static double now_us(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

static Done call_often(const Contestant &contestant, uint32_t times) {
    for (uint32_t i = 0; i < times; i++) QCCL_TRY(contestant.call());
    return {};
}

static Done call_to_the_end(const Contestant &contestant, uint32_t times) {
    QCCL_TRY(call_often(contestant, times));
    return contestant.finish ? contestant.finish() : Done();
}

// Untimed calls and then timed iterations until the buffers must be refilled.
struct Stretch {
    uint32_t lead_in;
    uint32_t iterations;
};

static Stretch next_stretch(const Contestant &contestant, uint32_t left,
                            const TurnOptions &options) {
    const uint64_t allowed = contestant.calls_per_refill;
    if (allowed == 0) return {options.lead_in, left};
    const uint32_t lead_in = allowed > options.lead_in + options.aggregated ? options.lead_in : 0;
    const uint64_t iterations = (allowed - lead_in) / options.aggregated;
    return {lead_in, static_cast<uint32_t>(std::clamp<uint64_t>(iterations, 1, left))};
}

static Done refill_together(Crew &crew, const Contestant &contestant) {
    QCCL_TRY(contestant.refill());
    return crew.barrier();
}

// Without a barrier between them calls follow one another, and the end of one is the beginning of
// the next: one look at the clock for each, and no gap that nobody is charged for.
static Done run_stretch(Crew &crew, const Contestant &contestant, uint32_t iterations,
                        const TurnOptions &options, Times &times) {
    const double first_cpu = now_us(CLOCK_THREAD_CPUTIME_ID);
    double begin = now_us(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < iterations; i++) {
        QCCL_TRY(call_often(contestant, options.aggregated));
        if (contestant.finish) {
            times.enqueue_us.push_back((now_us(CLOCK_MONOTONIC) - begin) / options.aggregated);
            QCCL_TRY(contestant.finish());
        }
        const double end = now_us(CLOCK_MONOTONIC);
        times.us.push_back((end - begin) / options.aggregated);
        begin = end;
        if (!options.barrier_between) continue;
        QCCL_TRY(crew.barrier());
        begin = now_us(CLOCK_MONOTONIC);
    }
    // One look for them all: this clock is a system call, which is slower than a small collective.
    const double each =
        (now_us(CLOCK_THREAD_CPUTIME_ID) - first_cpu) / (iterations * options.aggregated);
    times.cpu_us.insert(times.cpu_us.end(), iterations, each);
    return {};
}

static Done take_turn(Crew &crew, const Contestant &contestant, uint32_t iterations,
                      const TurnOptions &options, Times &times) {
    for (uint32_t left = iterations; left > 0;) {
        const Stretch stretch = next_stretch(contestant, left, options);
        QCCL_TRY(refill_together(crew, contestant));
        QCCL_TRY(call_to_the_end(contestant, stretch.lead_in));
        QCCL_TRY(run_stretch(crew, contestant, stretch.iterations, options, times));
        left -= stretch.iterations;
    }
    return {};
}

static Done warm_up(Crew &crew, const Contestant &contestant, const TurnOptions &options) {
    const uint64_t all = options.warmup_iterations;
    const uint64_t stretch = contestant.calls_per_refill == 0 ? all : contestant.calls_per_refill;
    for (uint64_t done = 0; done < all; done += stretch) {
        QCCL_TRY(refill_together(crew, contestant));
        QCCL_TRY(call_to_the_end(contestant, static_cast<uint32_t>(std::min(stretch, all - done))));
    }
    return {};
}

Result<std::vector<Times>> time_in_turns(Crew &crew, std::span<const Contestant> contestants,
                                         const TurnOptions &options) {
    std::vector<Times> times(contestants.size());
    for (Times &one : times) {
        one.us.reserve(options.iterations);
        one.cpu_us.reserve(options.iterations);
    }
    for (const Contestant &contestant : contestants) QCCL_TRY(warm_up(crew, contestant, options));

    const uint32_t turns = std::clamp<uint32_t>(options.turns, 1, options.iterations);
    for (uint32_t turn = 0; turn < turns; turn++) {
        const uint64_t all = options.iterations;
        const auto begin = static_cast<uint32_t>(all * turn / turns);
        const auto end = static_cast<uint32_t>(all * (turn + 1) / turns);
        for (size_t i = 0; i < contestants.size(); i++)
            QCCL_TRY(take_turn(crew, contestants[i], end - begin, options, times[i]));
    }
    return times;
}

} // namespace qccl::perf
