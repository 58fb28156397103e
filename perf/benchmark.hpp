// One rank's part in a sweep over types, operations, roots and sizes. Every rank runs the same;
// rank 0 alone is told what came of it.
#pragma once

#include "perf/point.hpp"

#include <vector>

namespace qccl::perf {

// The types of the sweep: those asked for, else float or what the input files hold.
std::vector<DataType> sweep_types(const PerfArguments &arguments);
std::vector<uint64_t> sweep_sizes(const PerfArguments &arguments);
std::vector<uint32_t> sweep_roots(const PerfArguments &arguments, uint32_t ranks);
// How many points a cycle has, for Audience::progress.
uint64_t sweep_points(const PerfArguments &arguments);

// Of all buffers of one rank, at most; beyond all memories where the sizes are.
double buffer_bytes(const PerfArguments &arguments);

// Whether any of the calls that are asked for can be, whatever their sizes; else why not.
Done check_combinations(const PerfArguments &arguments);

Done run_benchmark(const Stage &stage, const Audience &audience);

} // namespace qccl::perf
