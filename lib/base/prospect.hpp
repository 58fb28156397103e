// Whether what is waited for can still come, by what others know of it.
#pragma once

#include "base/deadline.hpp"
#include "base/result.hpp"

#include <algorithm>
#include <functional>

namespace qccl {

// Asked now and then during a wait, which an error ends. May be empty: nobody knows.
using Prospect = std::function<Done()>;

// When to look up from a wait.
inline TimePoint next_look(TimePoint now, TimePoint deadline, const Prospect &prospect) {
    static constexpr std::chrono::milliseconds between_looks(20);
    return prospect ? std::min(deadline, now + between_looks) : deadline;
}

} // namespace qccl
