// qccl-info plan: whether each tensor of a job is compressed and how it is cut, as a plan file that
// QCCL_PLAN_FILE takes.
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
    std::string out;       // the plan file; empty: standard output
    std::optional<Codec> codec = {};
    Algorithm algorithm = {}; // none: the planner chooses
    MachineQuestion machine = {};
};

void add_tensor_plan_options(CLI::App &app, const char *group, TensorPlanQuestion &question);

// Writes the plan and, unless that goes to standard output, prints what is in it. An error names
// what cannot be read, planned or written.
Done print_tensor_plan(const TensorPlanQuestion &question);

} // namespace qccl::perf
