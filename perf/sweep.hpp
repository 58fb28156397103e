// The calls that a command line names: which types, sizes and roots, in which order. Pure.
#pragma once

#include "perf/perf_arguments.hpp"

#include <cstdint>
#include <vector>

namespace qccl::perf {

// The types of the sweep: those asked for, else float or what the input files hold.
std::vector<DataType> sweep_types(const PerfArguments &arguments);
std::vector<uint64_t> sweep_sizes(const PerfArguments &arguments);
std::vector<uint32_t> sweep_roots(const PerfArguments &arguments, uint32_t ranks);
// How many points a cycle has, for Audience::progress.
uint64_t sweep_points(const PerfArguments &arguments);

} // namespace qccl::perf
