// The objects of hwloc that matter here, and the graph that they make. hwloc's own files and the
// running hwloc are read into the same tree. Pure data and a pure function.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

enum class HwlocType : uint8_t {
    other, // groups, caches, dies, cores: only what they contain matters
    package,
    numa,
    host_bridge, // from processors to PCI
    pci_bridge,
    pci_device,
    net_device,  // what the operating system calls a PCI device: "eth0"
    rdma_device, // "mlx5_0"
};

struct HwlocObject {
    HwlocType type = HwlocType::other;
    uint32_t number = 0;   // the operating system's, of packages and NUMA nodes
    CpuSet cpus = {};      // that the object contains or is near to; none of PCI and OS devices
    std::string name = {}; // of the machine, a processor's model, a PCI device's, an OS device's
    // Of packages as CPUID has them: "GenuineIntel", with the extended bits added to the numbers.
    std::string cpu_vendor = {};
    uint32_t cpu_family = 0, cpu_model = 0;
    // Of PCI bridges and devices.
    std::string bus_id = {};
    uint16_t pci_class = 0, pci_vendor = 0;
    double bytes_per_ns = 0; // of its link upwards; 0: unknown
    std::vector<HwlocObject> children = {};
};

// The machine that `root` stands for. Of PCI there is what leads to a GPU or a NIC: a switch or a
// slot with several of them is a part of its own, any other bridge is a piece of the link. GPUs are
// those of NVIDIA and AMD, no display adapters of management controllers. A port's rate and
// whether the port is connected hwloc does not know: NICs have no link to a network here.
Graph graph_of(const HwlocObject &root);

// The same with every NIC linked to a network at an unknown rate, where files say nothing of it.
Graph with_network(const Graph &machine);

// A machine with one package and one NUMA node, where nothing more is known of it.
Graph plain_machine(const CpuSet &cpus);

} // namespace qccl
