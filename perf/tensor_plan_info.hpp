// qccl-info plan: decides for each tensor of a job whether it is compressed and how it is cut, and
// writes a plan file for QCCL_PLAN_FILE. Used by qccl-info. Blocks while it plans.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "perf/machine_options.hpp"

#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace qccl::perf {

struct TensorPlanQuestion {
    std::string gradients; // a list of tensors, see read_tensors
    std::string out;       // file for the plan; empty: standard output
    std::optional<Codec> codec = {};
    Algorithm algorithm = {}; // none: the planner chooses
    MachineQuestion machine = {};
};

void add_tensor_plan_options(CLI::App &app, const char *group, TensorPlanQuestion &question);

// Writes the plan file. Also prints its content as a table unless the plan goes to standard output.
// The error names what cannot be read, planned or written.
Done print_tensor_plan(const TensorPlanQuestion &question);

} // namespace qccl::perf
