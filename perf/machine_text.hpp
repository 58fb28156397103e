// Describes in words the machine that the user asks a tool about, and checks that enough of it is
// known. Used by qccl-info and by qccl-perf simulate. Any thread; known_machine reads settings and
// files as machine_options.hpp does.
#pragma once

#include "base/result.hpp"
#include "perf/machine_options.hpp"

#include <string>

namespace qccl::perf {

// Returns a text such as "4 hosts", "1 host of the topology's 64", "2 hosts of the topology's 8,
// all in one rack".
std::string hosts_text(const Machine &machine);
// Returns a text such as ", and 0.125 GB/s for all of a rack", to follow the rate between hosts;
// empty if no rack rate is known.
std::string racks_text(const Machine &machine);
// Returns a text such as "4 ranks on 4 hosts with 0.125 GB/s between them" or "4 ranks on 1 host of
// the topology's 64".
std::string describe(const Machine &machine);

// Finds the machine for an answer in times. Refuses a question without the number of ranks, and
// hosts without a known rate between them.
Result<Machine> known_machine(const MachineQuestion &question);

} // namespace qccl::perf
