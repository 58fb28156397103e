// Runs one rank's part of a sweep over types, operations, roots and sizes. Used by qccl-perf's
// commands that measure. All ranks call it together, and it blocks until the sweep is done.
#pragma once

#include "perf/point.hpp"
#include "perf/sweep.hpp"

#include <vector>

namespace qccl::perf {

// Returns an upper bound, in bytes, for all buffers of one rank. A double, so that sizes beyond any
// memory do not overflow.
double buffer_bytes(const PerfArguments &arguments);

// Checks whether any of the requested calls is possible, regardless of size; otherwise the error
// says why not.
Done check_combinations(const PerfArguments &arguments);

Done run_benchmark(const RankContext &stage, const ProgressListener &listener);

} // namespace qccl::perf
