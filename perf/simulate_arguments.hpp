// The command line of qccl-perf simulate: which calls, on which machine, and where the results go.
// Used by simulate_command.cpp. Starts nothing.
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
    bool names_codecs = false; // false: calls without a codec use that of the environment
    std::string perfetto_file, goal_file; // empty: none
};

// `words` are those after "simulate". Returns the arguments, or the text and exit status to end
// with.
std::variant<SimulateArguments, Answer> parse_simulate_arguments(std::vector<std::string> words);

} // namespace qccl::perf
