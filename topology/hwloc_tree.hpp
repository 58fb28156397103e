// The objects of hwloc that matter here, and the graph that is made from them. The running hwloc
// and hwloc's own files are read into the same tree. Plain data and pure functions.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

enum class HwlocType : uint8_t {
    other, // groups, caches, dies, cores: only their contents matter
    package,
    numa,
    host_bridge, // from processors to PCI
    pci_bridge,
    pci_device,
    net_device,  // the operating system's name of a PCI device: "eth0"
    rdma_device, // "mlx5_0"
};

struct HwlocObject {
    HwlocType type = HwlocType::other;
    uint32_t number = 0;   // of packages and NUMA nodes, by the operating system
    CpuSet cpus = {};      // contained in the object or near to it; none for PCI and OS devices
    std::string name = {}; // of the machine, the processor's model, the PCI device or the OS device
    // Of packages, as CPUID gives them: "GenuineIntel"; the extended bits are added to the numbers.
    std::string cpu_vendor = {};
    uint32_t cpu_family = 0, cpu_model = 0;
    // Of PCI bridges and devices.
    std::string bus_id = {};
    uint16_t pci_class = 0, pci_vendor = 0;
    double bytes_per_ns = 0; // of its link upwards; 0: unknown
    std::vector<HwlocObject> children = {};
};

// Returns the graph of the machine `root`. Of PCI it has what leads to a GPU or a NIC: a switch or
// a slot with several of these is a part, any other bridge belongs to the link. GPUs are those of
// NVIDIA and AMD, without the display adapters of management controllers. hwloc does not know the
// rate of a port, or whether the port is connected, so NICs have no link to a network here.
Graph graph_of(const HwlocObject &root);

// Returns the machine with every NIC linked to a network at an unknown rate, for files that say
// nothing about the network.
Graph with_network(const Graph &machine);

// Returns a machine with one package and one NUMA node, for when nothing more is known about it.
Graph plain_machine(const CpuSet &cpus);

} // namespace qccl
