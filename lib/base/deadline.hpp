// Points in time after which nobody waits any longer. A timeout of zero means never.
#pragma once

#include <algorithm>
#include <chrono>

namespace qccl {

using TimePoint = std::chrono::steady_clock::time_point;

// As sentences have it.
inline double in_seconds(std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
}

inline TimePoint deadline_after(TimePoint now, std::chrono::nanoseconds timeout) {
    const bool is_never = timeout.count() <= 0 || timeout > TimePoint::max() - now;
    return is_never ? TimePoint::max() : now + timeout;
}

// What poll() is given: rounded up, so that a wait does not end just before its deadline, and never
// longer than a minute, because poll counts in an int.
inline int poll_timeout_ms(TimePoint now, TimePoint deadline) {
    static constexpr std::chrono::milliseconds longest = std::chrono::minutes(1);
    if (deadline <= now) return 0;
    const auto left = std::min<std::chrono::nanoseconds>(deadline - now, longest);
    return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

} // namespace qccl
