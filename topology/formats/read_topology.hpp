// Reads a topology as users name it on a command line (a file, or a line that describes machines),
// and places the ranks of a job on it. The tools use it. read_topology() reads files and blocks
// while it does; the other functions are pure. Any thread may call them.
//
// A line of text describes machines that are not there, for predictions and simulation:
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
//
// Files in XML are those of hwloc 2 and 3 (`lstopo FILE.xml` writes them), also of versions that
// the library's own hwloc does not know, and those of NCCL and RCCL (NCCL_TOPO_DUMP_FILE writes
// them, NCCL_TOPO_FILE names them). The caller passes the file's text.
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
//
// make_graph_fabric makes the simulator's fabric of a job whose topology is known. Each link of the
// graph that has a rate is shared by the messages whose best paths use it, each direction by
// itself. It reads the graph only while the fabric is made.
#pragma once

#include "base/link_class.hpp"
#include "base/result.hpp"
#include "plan/simulator/fabric.hpp"
#include "topology/graph.hpp"
#include "topology/job_graph.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// ---- Reading

// The content of a file decides how it is read: as the text form of topology/graph_text, or as XML
// of hwloc, NCCL or RCCL. Text that is the name of no file is read by topology/synthetic. Returns
// invalid_argument with a sentence if a file cannot be read, is larger than any topology or holds
// none, or if the text is neither.
Result<Graph> read_topology(const std::string &file_or_text);

// Parses the content of a file. `source` names the file in errors.
Result<Graph> parse_topology(std::string_view content, std::string_view source);

// ---- Where the ranks are

// Returns the vertex of each rank, by rank. On GPUs there is one rank each, in the order of the
// GPUs' numbers, and machine after machine is filled. Without GPUs each machine gets a block of
// ranks of the same size, or one less, and deals it out over its NUMA nodes. `ranks` 0: one rank
// for each GPU, or without GPUs for each NUMA node. Returns invalid_argument if there are more
// ranks than GPUs.
Result<std::vector<uint32_t>> rank_places(const Graph &graph, uint32_t ranks);

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

// ---- Fabric of the simulator

// Links within machines whose rate is unknown are no bottleneck; neither is memory, whose cost
// counts as computing. Links between machines and their networks have the rate `rates.line_rate` if
// the graph gives none, or if `says_line_rate` is true. The latency and the processor time of
// messages are those of `rates`; the latencies of the links are added. Returns invalid_argument if
// no path connects two ranks.
Result<std::unique_ptr<Fabric>> make_graph_fabric(const JobTopology &job, const TieredRates &rates,
                                                  bool says_line_rate);

} // namespace qccl
