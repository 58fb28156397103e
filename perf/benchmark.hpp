// One rank's part in a sweep over types, operations, roots and sizes. Every rank runs the same;
// rank 0 alone is told what came of it.
#pragma once

#include "perf/point.hpp"
#include "perf/sweep.hpp"

#include <vector>

namespace qccl::perf {

// Of all buffers of one rank, at most; beyond all memories where the sizes are.
double buffer_bytes(const PerfArguments &arguments);

// Whether any of the calls that are asked for can be, whatever their sizes; else why not.
Done check_combinations(const PerfArguments &arguments);

Done run_benchmark(const Stage &stage, const Audience &audience);

} // namespace qccl::perf
