// Parses the text of a synthetic topology into the form from which the graph is made. Only
// topology/synthetic uses it. Pure; any thread may call it.
#pragma once

#include "base/result.hpp"
#include "plan/link_class.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

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

} // namespace qccl
