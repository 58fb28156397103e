// Deadlines: points in time at which a wait ends. A timeout of zero means no deadline. Pure; any
// thread may call.
#pragma once

#include <algorithm>
#include <chrono>

namespace qccl {

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

} // namespace qccl
