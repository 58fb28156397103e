// What tools say of a machine that they are asked about, and what they have to know of it. Reads
// what machine_options does.
#pragma once

#include "base/result.hpp"
#include "perf/machine_options.hpp"

#include <string>

namespace qccl::perf {

// "4 hosts", "1 host of the topology's 64", "2 hosts of the topology's 8, all in one rack".
std::string hosts_text(const Machine &machine);
// ", and 0.125 GB/s for all of a rack", to stand behind the rate between hosts; empty where no line
// of a rack is known.
std::string racks_text(const Machine &machine);
// "4 ranks on 4 hosts with 0.125 GB/s between them", "4 ranks on 1 host of the topology's 64"
std::string describe(const Machine &machine);

// The machine, for an answer in times: refuses a question that does not say how many ranks there
// are, and hosts between which no rate is known.
Result<Machine> known_machine(const MachineQuestion &question);

} // namespace qccl::perf
