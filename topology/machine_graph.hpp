// Makes the graph of one machine from what its sources report: the tree of hwloc's objects (the
// running hwloc and hwloc's own files are read into the same tree), and the links between GPUs in
// one form for all drivers. Rates of links from the vendors' data sheets complete what a source
// leaves open, when it knows the kind of a link but not its rate. The discovery of this machine
// uses it, and so do the readers of topology files and the synthetic topologies. Plain data and
// pure functions; any thread may call them. All rates are bytes per nanosecond (GB/s) each way; 0:
// unknown.
#pragma once

#include "topology/graph.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// ---- Rates from data sheets

// Rate of `lanes` PCIe lanes at `gigatransfers` GT/s each. The line code is deducted, the headers
// of packets are not.
double pcie_rate(double gigatransfers, uint32_t lanes);

// Rate of one NVLink of a GPU with this architecture ("sm90").
double nvlink_rate(std::string_view arch);

// Rate of one Infinity Fabric link between two GPUs of this architecture ("gfx942").
double xgmi_rate(std::string_view arch);

// Rate from one socket to another over all links together, for the processor of this model range
// with the most links. `vendor` is CPUID's ("GenuineIntel"); `family` and `model` are CPUID's with
// the extended bits added.
double cpu_interconnect_rate(std::string_view vendor, uint32_t family, uint32_t model);

// ---- hwloc's objects

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

// ---- Links between GPUs

struct GpuLink {
    std::string from;    // bus id
    std::string to = {}; // bus id of the other GPU; empty: an NVSwitch
    LinkClass link_class = LinkClass::nvlink;
    double bytes_per_ns = 0; // each way, parallel links together; 0: unknown
    uint32_t width = 1;      // the number of parallel links

    bool operator==(const GpuLink &) const = default;
};

struct GpuDetails {
    std::map<std::string, std::string> arch; // by bus id: "sm90", "gfx942"
    // A link between two GPUs appears once, or twice if both ends report it.
    std::vector<GpuLink> links;
};

// Returns `machine` with what was found. If the ends of a link report different values, the smaller
// one counts. GPUs that are not in the graph, and links to them, are left out. What the graph
// already has stays: links between GPUs, and an architecture. All NVSwitches are one vertex, the
// last one.
Graph with_gpu_details(const Graph &machine, const GpuDetails &found);

} // namespace qccl
