// A check that a wait makes at intervals: it ends the wait if the awaited event can no longer come.
// Used by the transport's waits for keepalive connections and for passed file descriptors.
#pragma once

#include "base/deadline.hpp"
#include "base/result.hpp"

#include <algorithm>
#include <functional>

namespace qccl {

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
