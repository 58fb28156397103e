// The calls that a command line selects: types, sizes and roots, in the order of the sweep. Used by
// the commands that measure, simulate or explain calls. Any thread; nothing blocks.
#pragma once

#include "perf/perf_arguments.hpp"

#include <cstdint>
#include <vector>

namespace qccl::perf {

// Returns the requested types; by default float, or the type of the input files.
std::vector<DataType> sweep_types(const PerfArguments &arguments);
std::vector<uint64_t> sweep_sizes(const PerfArguments &arguments);
std::vector<uint32_t> sweep_roots(const PerfArguments &arguments, uint32_t ranks);
// Returns the number of points in a cycle, for ProgressListener::progress.
uint64_t sweep_points(const PerfArguments &arguments);

} // namespace qccl::perf
