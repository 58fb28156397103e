// qccl-info whatif: how long a recorded job would take on another machine or with another codec.
#pragma once

#include "perf/machine_options.hpp"

#include <optional>
#include <string>
#include <vector>

namespace qccl::perf {

struct WhatIfQuestion {
    std::vector<std::string> logs; // of QCCL_RECORD_CALLS
    MachineQuestion machine = {};  // says no ranks: that of the job, with its cores and a host for
                                   // each node
    std::optional<Codec> codec = {}; // nothing: what each call had, or what the settings say
    Algorithm algorithm = {};        // empty: the planner chooses
    std::string plan_file = {}, json_file = {}; // to write; empty: none
};

// Prints the job as it was recorded, as it would be with the recorded codecs and algorithms, and
// with those asked for, in all and by shape of calls. Refuses with invalid_argument or damaged_data
// logs that cannot be read or do not fit together, a machine of another number of ranks, and what
// cannot be written.
Done print_whatif(const WhatIfQuestion &question, const std::vector<std::string> &command_line);

} // namespace qccl::perf
