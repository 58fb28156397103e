// Builds topologies of machines that are not there from a line of text. The tools use it for
// predictions and simulation. Pure; any thread may call it.
//
//   64 x node(8 gpu nvlink:450) net:50x8
//   2 x rack(32 x node(8 gpu nvswitch:450 8 nic:50)) net:rdma:400x4
//   4 x node(2 package 16 core) + 1 x node(4 core) net:tcp:1gbit
//
//   network = group {"+" group} ["net:" port]
//   group   = [COUNT ["x"]] ("node" ["(" {item} ")"] | "rack(" network ")")
//   item    = [COUNT] ("package" | "numa" | "core" | "pci" | "gpu") | [COUNT] "nic:" port
//           | ("nvlink:" | "nvswitch:" | "xgmi:" | "pcie:" | "interconnect:" | "memory:") RATE
//           | "arch:" NAME
//   port    = ["tcp:" | "rdma:"] RATE ["x" COUNT]
//
// Blanks and commas separate. A RATE is in GB/s each way, or has a unit as in 400gbit; that of pcie
// may be gen1 to gen6 with 16 lanes. Counts are those of the whole node. Cores and PCI switches are
// dealt out evenly in their order; so are GPUs and NICs, over the PCI switches if there are any, so
// that `8 pci` pairs 8 GPUs with 8 NICs. The rate of nvlink and xgmi is that of a GPU to all others
// together; each GPU is linked with each other one. A port without a class is tcp below 25 Gbit/s,
// otherwise rdma; RDMA reaches the memory of GPUs. `net:` gives the NICs of each node that names
// none, and the links of each rack to the network around it.
#pragma once

#include "base/result.hpp"
#include "plan/link_class.hpp"
#include "topology/graph.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// ---- The parsed line

// The ports of one kind of NIC, or the links of a rack to the network around it.
struct PortSpec {
    LinkClass link_class = LinkClass::tcp;
    double bytes_per_ns = 0;
    uint32_t count = 0; // 0: there are none
};

// Counts are those of the whole node; rates are bytes per ns each way, 0: unknown.
struct NodeSpec {
    uint32_t packages = 0, numas = 0, cores = 0, pci = 0, gpus = 0; // 0: not given
    std::vector<PortSpec> nics;
    double nvlink = 0, xgmi = 0; // of a GPU to all others
    double nvswitch = 0;         // of a GPU to the switch
    double pcie = 0, interconnect = 0, memory = 0;
    uint32_t lanes = 1; // of PCIe
    std::string arch;   // of the GPUs
};

struct NetworkSpec;

// Equal nodes, or equal racks.
struct GroupSpec {
    uint32_t count = 1;
    NodeSpec node;
    std::vector<NetworkSpec> rack; // one for racks, none for nodes
};

struct NetworkSpec {
    std::vector<GroupSpec> groups;
    PortSpec port; // of each member without ports of its own
};

// Returns invalid_argument with a sentence that names the character where the text goes wrong.
Result<NetworkSpec> parse_synthetic_spec(std::string_view text);

// ---- The graph

// Returns a graph that has passed check(), or invalid_argument with a sentence that names the
// character where the text goes wrong. 8,192 ranks take a few milliseconds.
Result<Graph> parse_synthetic(std::string_view text);

} // namespace qccl
