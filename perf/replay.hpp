// A recorded job with other times of its calls: what each rank computes between calls stays, and so
// does its being late; how long it waits for others follows. Used by qccl-info whatif. Pure.
#pragma once

#include "perf/recorded_job.hpp"

#include <span>
#include <vector>

namespace qccl::perf {

// Of a call whose ranks begin together, by rank of its communicator.
struct CallTimes {
    std::vector<double> finish_ns; // until the rank is done
    std::vector<double> busy_ns;   // of that, what it does itself
};

struct ReplayedTimes {
    double time_ns = 0;     // from the first rank's first call to the end of the last
    double in_calls_ns = 0; // the most of a rank
};

// `times`: by RecordedJob::shapes. A rank without a log is never late.
ReplayedTimes replay(const RecordedJob &job, std::span<const CallTimes> times);

} // namespace qccl::perf
