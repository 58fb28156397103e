// Computes how long a recorded job takes on a machine: simulates its calls and replays the job with
// their times. Used by qccl-info whatif. Reads settings and plan files. Blocks while it simulates.
#pragma once

#include "perf/replay.hpp"
#include "perf/whatif.hpp"
#include "plan/plan_file.hpp"

#include <optional>
#include <string>
#include <vector>

namespace qccl::perf {

// The calls of one shape with one plan.
struct WhatIfCase {
    double time_ns = 0; // time of a call whose ranks begin together
    uint64_t wire_bytes = 0;
    Codec codec = {};
    std::string algorithm = {};
    std::optional<double> nmse = {}; // nothing: the call has no sum or its values are integers
};

struct WhatIfTotals {
    ReplayedTimes times = {};
    double wire_bytes = 0; // the most that any rank sends
    double nmse = 0;       // the largest of any call
};

struct WhatIfAnswer {
    RecordedJob job;
    Machine machine;
    // Indexed like RecordedJob::shapes: with the recorded codec and algorithm, and as requested.
    std::vector<WhatIfCase> as_recorded, asked;
    WhatIfTotals as_recorded_totals, asked_totals;
    double recorded_wire_bytes = 0;
    PlanFile plan; // the requested plan as rules
};

Result<WhatIfAnswer> find_whatif(const WhatIfQuestion &question);

} // namespace qccl::perf
