// The classes of links and of paths between ranks, with the figures that stand in where a machine
// gives nothing more exact. Used by the topology graph, the planner and the simulator. Pure data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace qccl {

// From the best to the worst path. A path has the class of its worst link, with two exceptions. A
// path between machines is gpudirect_rdma if it ends at a GPU that its RDMA-capable NIC reaches
// without the CPU. A path over PCIe that crosses a CPU interconnect is cpu_interconnect.
enum class LinkClass : uint8_t {
    nvswitch,         // NVLink through a switch
    nvlink,           // between two GPUs
    xgmi,             // AMD's Infinity Fabric between two GPUs
    shared_memory,    // within a NUMA node
    pcie,             // peer to peer, through PCI switches or a root complex
    cpu_interconnect, // between packages or NUMA nodes of a machine (UPI, Infinity Fabric)
    gpudirect_rdma,   // between a GPU's memory and a NIC
    rdma,             // InfiniBand, RoCE
    tcp,
};
inline constexpr size_t link_classes = static_cast<size_t>(LinkClass::tcp) + 1;

constexpr bool is_between_machines(LinkClass link_class) {
    return link_class >= LinkClass::gpudirect_rdma;
}

struct LinkClassRow {
    std::string_view name; // as in topology files and reports
    // One way, from a rank's send to the receiver's next step, software included. The figure counts
    // if neither the machine nor a calibration gives one.
    double latency_ns;
    // The part of its data sheet's rate that a link sustains, after headers and flow control.
    double efficiency;
    // Assumed for a link of unknown rate, so that searches can compare paths. Predictions do not
    // use it.
    double typical_bytes_per_ns;
};

// Latencies and efficiencies are rounded figures of public benchmarks: nccl-tests on HGX machines
// for GPU links, ucx_perftest for RDMA and TCP, `qccl-perf all_reduce` for shared memory.
constexpr std::array<LinkClassRow, link_classes> link_class_table = {{
    {"nvswitch", 2500, 0.80, 450},
    {"nvlink", 2000, 0.80, 50},
    {"xgmi", 2500, 0.75, 50},
    {"shared_memory", 400, 1.00, 100},
    {"pcie", 4000, 0.80, 16},
    {"cpu_interconnect", 800, 0.80, 20},
    {"gpudirect_rdma", 5000, 0.92, 12.5},
    {"rdma", 3000, 0.92, 12.5},
    {"tcp", 30000, 0.94, 0.125},
}};

constexpr const LinkClassRow &row(LinkClass link_class) {
    return link_class_table[static_cast<size_t>(link_class)];
}
constexpr std::string_view name(LinkClass link_class) { return row(link_class).name; }

// Returns the class of this name; nothing if there is none.
constexpr std::optional<LinkClass> link_class_of(std::string_view name) {
    for (size_t i = 0; i < link_classes; i++)
        if (link_class_table[i].name == name) return static_cast<LinkClass>(i);
    return std::nullopt;
}

} // namespace qccl
