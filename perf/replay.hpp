// Replays a recorded job with other times for its calls. The ranks compute between calls as long as
// recorded, and so arrive late as recorded; how long they wait for each other follows. Used by
// qccl-info whatif. Any thread; a call blocks while it computes.
#pragma once

#include "perf/recorded_job.hpp"

#include <span>
#include <vector>

namespace qccl::perf {

// The times of a call whose ranks begin together, by rank of its communicator.
struct CallTimes {
    std::vector<double> finish_ns; // until the rank has finished the call
    std::vector<double> busy_ns;   // the part of it in which the rank itself works
};

struct ReplayedTimes {
    double time_ns = 0;     // from the first rank's first call to the end of the last call
    double in_calls_ns = 0; // the largest of any rank
};

// `times` is indexed like RecordedJob::shapes. A rank without a log is never late.
ReplayedTimes replay(const RecordedJob &job, std::span<const CallTimes> times);

} // namespace qccl::perf
