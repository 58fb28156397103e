// qccl-info whatif: predicts how long a recorded job would take on another machine or with another
// codec. Used by qccl-info. Blocks while it simulates.
#pragma once

#include "perf/machine_options.hpp"

#include <optional>
#include <string>
#include <vector>

namespace qccl::perf {

struct WhatIfQuestion {
    std::vector<std::string> logs;   // files of QCCL_RECORD_CALLS
    MachineQuestion machine = {};    // without ranks: the job's machine, with its cores and
                                     // one host for each node
    std::optional<Codec> codec = {}; // nothing: the codec of each call, or that of the settings
    Algorithm algorithm = {};        // empty: the planner chooses
    std::string plan_file = {}, json_file = {}; // files to write; empty: none
};

// Prints the job as recorded, as predicted with the recorded codecs and algorithms, and as
// predicted with the requested ones, in total and by shape of calls. Fails with invalid_argument or
// damaged_data if logs cannot be read or do not fit together, or if the machine has another number
// of ranks. Fails also if a file cannot be written.
Done print_whatif(const WhatIfQuestion &question, const std::vector<std::string> &command_line);

} // namespace qccl::perf
