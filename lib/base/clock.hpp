// Time: the processor's clock, for times that are taken in every call; deadlines, the points in
// time at which a wait ends; and the check that a wait makes at intervals, which ends the wait if
// the awaited event can no longer come. A timeout of zero means no deadline. Any thread may call,
// and all threads of a process read the same clock; nothing blocks.
#pragma once

#include "base/result.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>

namespace qccl {

// ---- The processor's clock

// Returns the time in the processor's own ticks. Reading it takes a few cycles; a system clock
// takes tens of ns.
inline uint64_t ticks_now() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#elif defined(__powerpc64__)
    return __builtin_ppc_get_timebase();
#else
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
#endif
}

// ---- Deadlines

using TimePoint = std::chrono::steady_clock::time_point;

// The time in seconds, as messages print it.
inline double in_seconds(std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
}

inline TimePoint deadline_after(TimePoint now, std::chrono::nanoseconds timeout) {
    const bool is_never = timeout.count() <= 0 || timeout > TimePoint::max() - now;
    return is_never ? TimePoint::max() : now + timeout;
}

// Returns a timeout for poll(), in ms. It is rounded up, so that a wait does not end just before
// its deadline, and is at most a minute, because poll() counts in an int.
inline int poll_timeout_ms(TimePoint now, TimePoint deadline) {
    static constexpr std::chrono::milliseconds longest = std::chrono::minutes(1);
    if (deadline <= now) return 0;
    const auto left = std::min<std::chrono::nanoseconds>(deadline - now, longest);
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

// ---- Checks during a wait

// A wait calls this at intervals; an error ends the wait. May be empty: then the wait ends only by
// its event or its deadline.
using CancelCheck = std::function<Done()>;

// Returns when a wait wakes up next: at the deadline, or 20 ms from `now` if there is a check to
// call.
inline TimePoint next_look(TimePoint now, TimePoint deadline, const CancelCheck &cancel_check) {
    static constexpr std::chrono::milliseconds between_looks(20);
    return cancel_check ? std::min(deadline, now + between_looks) : deadline;
}

} // namespace qccl
