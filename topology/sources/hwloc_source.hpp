// Discovers the machine that this process runs on with hwloc and, if wanted, the links between its
// GPUs with their drivers. Communicator creation and the tools use it. hwloc's first load in a
// process takes 10 to 50 ms, most of it for plugins. Any thread may call the functions; they block,
// and leave the binding of threads alone.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <string>

namespace qccl {

struct DiscoveredMachine {
    Graph graph; // vertex 0 is the machine; NICs have no link to a network
    // A sentence for the user if hwloc has failed; the graph is then one package with one NUMA node
    // of the processors that the calling thread may run on. Otherwise empty.
    std::string warning = {};
    // What the environment tells hwloc to read instead of this machine, "HWLOC_XMLFILE=/tmp/m.xml".
    // Otherwise empty.
    std::string instead_of_hardware = {};
};

// hwloc opens no GPU. NVIDIA's driver wakes the GPUs whose links it is asked for, which can take
// seconds. No driver is asked if hwloc reads something other than the machine.
enum class GpuLinks : uint8_t { left_out, asked_for };

// Discovers the machine and never fails: see DiscoveredMachine::warning. hwloc also reads its own
// variables (HWLOC_XMLFILE, HWLOC_SYNTHETIC and others).
DiscoveredMachine discover_machine(GpuLinks links);

// Returns the processors that the calling thread may run on.
CpuSet allowed_cpus();

// Returns the version of hwloc that this library was built with, such as "2.9.0".
std::string hwloc_version();

} // namespace qccl
