// Reads the topology files of NCCL and RCCL (NCCL_TOPO_DUMP_FILE writes them, NCCL_TOPO_FILE names
// them). Pure: the caller has the file's text. Any thread may call it.
//
// What the files leave open is decided so:
// - Each `cpu` element is a NUMA node; files say nothing of packages.
// - Elements with different host_hash, or in different `system` elements, are of different
// machines.
//   A network contains the machines, and each `net` is a NIC linked to it. One machine without
//   `net` has no network.
// - A `net` with port 0 is a socket (tcp), any other one moves memory by itself (rdma). A `net`
// with
//   the name and dev of another one of its machine is the same port and counts once. No port
//   carries 10 Tbit/s: a greater `speed` is in kbit/s or bit/s, as some network plugins write.
// - A GPU's links to NVSwitches (tclass 0x068000) are one link to one switch for all; links to the
//   processor (c2c) are of class nvlink. Of two different counts of links between two GPUs the
//   smaller holds. Links to what the file does not have are left out.
// - Of several parts with one bus id a GPU or NIC keeps it, else none does. Two GPUs may not have
//   the same one.
// - A `pci` of a GPU's or NIC's class without such an element, as in the files for virtual
// machines,
//   stands for one. link_width 0 or 255 and an empty link_speed mean that the rate is unknown.
#pragma once

#include "base/result.hpp"
#include "topology/graph.hpp"

#include <string_view>

namespace qccl {

inline constexpr size_t most_nccl_xml_bytes = size_t{16} << 20;

// `source` names the file in errors. Returns invalid_argument with a sentence that names line,
// element and value where the text is no such file or one of its values cannot be. The graph has
// passed check().
Result<Graph> parse_nccl_xml(std::string_view text, std::string_view source);

} // namespace qccl
