// What a recorded job's calls take on a machine: simulated, and put together by a replay. Used by
// qccl-info whatif. Reads settings and plan files.
#pragma once

#include "perf/replay.hpp"
#include "perf/whatif.hpp"
#include "plan/plan_file.hpp"

#include <optional>
#include <string>
#include <vector>

namespace qccl::perf {

// Of a shape's calls with one plan.
struct WhatIfCase {
    double time_ns = 0; // of a call whose ranks begin together
    uint64_t wire_bytes = 0;
    Codec codec = {};
    std::string algorithm = {};
    std::optional<double> nmse = {}; // nothing: the call has no sum or its values are integers
};

struct WhatIfTotals {
    ReplayedTimes times = {};
    double wire_bytes = 0; // the most that a rank sends
    double nmse = 0;       // the greatest of a call
};

struct WhatIfAnswer {
    RecordedJob job;
    Machine machine;
    // By RecordedJob::shapes: with the recorded codec and algorithm, and as asked.
    std::vector<WhatIfCase> as_recorded, asked;
    WhatIfTotals as_recorded_totals, asked_totals;
    double recorded_wire_bytes = 0;
    PlanFile plan; // what was asked for, as rules
};

Result<WhatIfAnswer> find_whatif(const WhatIfQuestion &question);

} // namespace qccl::perf
