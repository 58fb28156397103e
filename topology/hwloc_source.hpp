// The machine that this process runs on, as hwloc finds it, and if wanted the links between its
// GPUs, as their drivers know them. Used where a communicator is made and by the tools. hwloc's
// first load in a process takes 10 to 50 ms, of which its plugins are most; any thread may call it,
// and none is bound meanwhile.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <string>

namespace qccl {

struct DiscoveredMachine {
    Graph graph; // vertex 0 is the machine; NICs have no link to a network
    // A sentence for people where hwloc has failed and the graph is one package with one NUMA node
    // of the processors that the calling thread may run on. Otherwise empty.
    std::string warning = {};
    // What hwloc was told to read instead of this machine, "HWLOC_XMLFILE=/tmp/m.xml"; otherwise
    // empty.
    std::string instead_of_hardware = {};
};

// hwloc opens no GPU, but NVIDIA's driver wakes those whose links it is asked for, which can take
// seconds. No driver is asked where hwloc reads something else than the machine.
enum class GpuLinks : uint8_t { left_out, asked_for };

// hwloc reads its own variables (HWLOC_XMLFILE, HWLOC_SYNTHETIC and others).
DiscoveredMachine discover_machine(GpuLinks links);

// The processors that the calling thread may run on.
CpuSet allowed_cpus();

// "2.9.0", that this library was built with.
std::string hwloc_version();

} // namespace qccl
