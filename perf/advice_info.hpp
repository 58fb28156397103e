// qccl-info advise: for data at hand and a network, which codec to use, what it loses and what time
// it saves, for each of a ladder of errors or for one.
#pragma once

#include "base/result.hpp"
#include "perf/machine_options.hpp"

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace qccl::perf {

struct AdviceQuestion {
    std::string input;               // "DIR/rank%r.npy"
    std::optional<double> nmse = {}; // nothing: a ladder of errors
    std::string json;                // a file to be written; empty: none; "-": standard output
    MachineQuestion machine = {};
};

void add_advice_options(CLI::App &app, const char *group, AdviceQuestion &question);

// Prints a table and a sentence, unless JSON goes to standard output. An error names what cannot be
// read or asked.
Done print_advice(const AdviceQuestion &question);

} // namespace qccl::perf
