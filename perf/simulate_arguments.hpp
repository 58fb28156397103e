// The command line of qccl-perf simulate: which calls, on which machine, and where the results go.
// Starts nothing.
#pragma once

#include "perf/machine_options.hpp"
#include "perf/perf_arguments.hpp"

#include <string>
#include <variant>
#include <vector>

namespace qccl::perf {

struct SimulateArguments {
    PerfArguments calls; // sizes, types, codecs, algorithms, ranks
    Machine machine;
    bool names_codecs = false;            // else calls without a codec have the environment's
    std::string perfetto_file, goal_file; // empty: none
};

// `words` are those behind "simulate".
std::variant<SimulateArguments, Answer> parse_simulate_arguments(std::vector<std::string> words);

} // namespace qccl::perf
