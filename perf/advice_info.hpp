// qccl-info advise: for given data and a network, says which codec to use, its error and the time
// it saves, for one error budget or for a ladder of budgets. Used by qccl-info. Blocks while it
// computes.
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
    std::optional<double> nmse = {}; // the error budget; nothing: a ladder of budgets
    std::string json;                // file to write; empty: none; "-": standard output
    MachineQuestion machine = {};
};

void add_advice_options(CLI::App &app, const char *group, AdviceQuestion &question);

// Prints a table and a sentence, unless JSON goes to standard output. Fails with a text that names
// what cannot be read or answered.
Done print_advice(const AdviceQuestion &question);

} // namespace qccl::perf
