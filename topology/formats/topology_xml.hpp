// Reads topology files in XML: those of hwloc 2 and 3 (`lstopo FILE.xml` writes them), also of
// versions that the library's own hwloc does not know, and those of NCCL and RCCL
// (NCCL_TOPO_DUMP_FILE writes them, NCCL_TOPO_FILE names them). The tools use it. Pure: the caller
// passes the file's text. Any thread may call it.
//
// What the files of NCCL and RCCL leave open is decided as follows:
// - Each `cpu` element is a NUMA node; files say nothing about packages.
// - Elements with different host_hash, or in different `system` elements, belong to different
//   machines. A network contains the machines, and each `net` is a NIC linked to it. A single
//   machine without `net` has no network.
// - A `net` with port 0 is a socket (tcp); any other `net` moves memory by itself (rdma). A `net`
//   with the name and dev of another one of its machine is the same port and counts once. No port
//   carries 10 Tbit/s: a greater `speed` is in kbit/s or bit/s, as some network plugins write it.
// - A GPU's links to NVSwitches (tclass 0x068000) are one link to one switch for all GPUs; links to
//   the processor (c2c) have class nvlink. If the counts of links between two GPUs differ, the
//   smaller one holds. Links to parts that the file does not have are left out.
// - If several parts have one bus id, a GPU or NIC keeps the id; if none of them is a GPU or NIC,
//   no part keeps the id. Two GPUs may not have the same id.
// - A `pci` that has the class of a GPU or NIC but no such element, as in files for virtual
//   machines, stands for one. link_width 0 or 255 and an empty link_speed mean that the rate is
//   unknown.
#pragma once

#include "base/result.hpp"
#include "topology/graph.hpp"

#include <string_view>

namespace qccl {

// ---- hwloc

inline constexpr size_t most_hwloc_xml_bytes = size_t{16} << 20;

// `source` names the file in errors. Returns a graph that has passed check(); vertex 0 is a network
// if the machine has a NIC. Returns invalid_argument with a sentence that names line, object and
// value if the text is no such file or if a value cannot be.
Result<Graph> parse_hwloc_xml(std::string_view text, std::string_view source);

// ---- NCCL and RCCL

inline constexpr size_t most_nccl_xml_bytes = size_t{16} << 20;

// `source` names the file in errors. Returns a graph that has passed check(). Returns
// invalid_argument with a sentence that names line, element and value if the text is no such file
// or if a value cannot be.
Result<Graph> parse_nccl_xml(std::string_view text, std::string_view source);

} // namespace qccl
