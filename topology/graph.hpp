// The graph of a machine, or of the machines of a job: the parts and the links between them, sets
// of processors, the best path between two parts, and the copy of one machine as a graph of its
// own. Sources build the graph, the searches for rings and the planner's figures read it, reports
// print it. Plain data and pure functions: equal graphs give equal answers on every rank. Any
// thread may call the functions; only one thread at a time may change a graph.
//
// Every source builds the same shape. Vertex 0 contains all others: it is the machine, or the
// network of a job. Each part has one link to the part that contains it, so that a path between
// packages leads through their machine:
//   machine -- package -- numa     cpu_interconnect; machine -- numa if packages are unknown
//   numa, package, machine -- pci  pcie (the rate and width of the slot), also pci -- gpu, nic
//   numa -- numa (itself)          shared_memory
//   nic -- network                 tcp or rdma (the rate of the port)
// A NIC without a PCI address (veth, bonds) is a part of the machine itself, linked with class
// shared_memory. GPUs have further links: nvlink and xgmi to one another, nvswitch to a switch, or
// nvlink to the NUMA node whose memory they share (C2C). An NVSwitch has no other links. If the
// rates of a machine's ports are known, vertex 0 is a network that contains the machine, and the
// ports are linked to that network.
//
// A topology has a text form of the project's own: one line for each part and each link. The tools
// write a topology down in it and read it again.
//
//   qccl topology 1
//   part 0 machine name node0
//   part 1 numa in 0 cpus ff
//   part 2 gpu in 1 number 3 bus 0000:1b:00.0 arch sm90
//   link 0 1 cpu_interconnect rate 62.4
//   link 1 2 pcie rate 63.01538461538462 latency 500 width 16
//
// Parts are numbered in order from 0; `in` names the part that contains this one. Rates are GB/s
// each way, latencies ns; both are 0 (unknown) if they are left out. `number` is 0 and `width` is 1
// if left out. NICs may have the words rdma and gpudirect. A `#` at the place of a word begins a
// comment. Words that hold anything but letters, digits and _ . : , / + - are quoted; in quotes \",
// \\ and \xHH stand for a quote, a backslash and any byte.
#pragma once

#include "base/link_class.hpp"
#include "base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// ---- Sets of processors

class CpuSet {
public:
    // More than any machine has. The limit keeps a damaged file from using up the memory.
    static constexpr uint32_t most_cpus = 1U << 16;

    // Ignores numbers from most_cpus on.
    void add(uint32_t cpu);
    bool has(uint32_t cpu) const;
    bool contains(const CpuSet &other) const;
    bool is_empty() const { return words_.empty(); }
    uint32_t size() const;
    bool operator==(const CpuSet &) const = default;

    // Returns "ff,ffffffff": hexadecimal words of 32 processors, the highest first, as Linux prints
    // masks. The empty set is "0".
    std::string print() const;
    // Reads what print() returns. Words may also have leading zeros or "0x", and a word of 0
    // between two others may be empty, as hwloc prints it. Returns nothing if the text is no such
    // mask or has too many processors.
    static std::optional<CpuSet> parse(std::string_view mask);

private:
    std::vector<uint32_t> words_; // lowest first; the last one is never 0
};

// ---- Parts and links

enum class VertexKind : uint8_t {
    network, // a switch, a rack or the whole network between machines
    machine,
    package, // a processor socket
    numa,    // a NUMA node: memory and the processors next to it
    pci,     // a PCI switch or bridge
    nvswitch,
    gpu,
    nic, // one port of a network adapter
};
inline constexpr size_t vertex_kinds = static_cast<size_t>(VertexKind::nic) + 1;
std::string_view name(VertexKind kind);

inline constexpr uint32_t no_vertex = UINT32_MAX;

struct Vertex {
    VertexKind kind = VertexKind::machine;
    // The part that contains this one and that comes before it in the graph. A network contains
    // machines and networks, a machine everything else. no_vertex: no part contains this one.
    uint32_t parent = no_vertex;
    // For display: the host's name, the model of a processor or GPU, "mlx5_0", "eth0". May be
    // empty.
    std::string name = {};
    std::string bus_id = {}; // of PCI devices, "0000:1b:00.0"; unique within a machine
    // The machine's own number of a NUMA node, package, GPU or NIC.
    uint32_t number = 0;
    CpuSet cpus = {};       // of a NUMA node
    std::string arch = {};  // of a GPU: "sm90", "gfx942"
    bool rdma = false;      // of a NIC: it moves memory without the processor
    bool gpudirect = false; // of a NIC: it reads and writes the memory of GPUs

    bool operator==(const Vertex &) const = default;
};

// A link has its rate in both directions at once. A link of a NUMA node to itself stands for the
// node's memory.
struct Link {
    uint32_t from = 0, to = 0; // vertices
    LinkClass link_class = LinkClass::pcie;
    double bytes_per_ns = 0; // each way, as in the data sheet, all lanes together; 0: unknown
    double latency_ns = 0;   // 0: unknown
    uint32_t width = 1;      // PCIe lanes, or parallel links of NVLink and xGMI

    bool operator==(const Link &) const = default;
    uint32_t other(uint32_t vertex) const { return vertex == from ? to : from; }
};

class Graph {
public:
    // More than any job has; sources refuse larger graphs.
    static constexpr size_t most_vertices = size_t{1} << 20, most_links = size_t{1} << 22;

    // Returns the number of the new vertex, which links use to name it.
    uint32_t add(Vertex vertex);
    // Copies all vertices and links of another graph. The other graph's vertex 0 becomes a part of
    // `parent`. Returns the new number of that vertex; the others follow in their order.
    uint32_t add(const Graph &other, uint32_t parent);
    // Both ends must have been added before.
    void connect(const Link &link);

    std::span<const Vertex> vertices() const { return vertices_; }
    std::span<const Link> links() const { return links_; }
    const Vertex &vertex(uint32_t number) const { return vertices_[number]; }
    const Link &link(uint32_t number) const { return links_[number]; }
    // The numbers of a vertex's links, in the order in which they were added.
    std::span<const uint32_t> links_of(uint32_t vertex) const { return links_of_[vertex]; }
    std::span<const uint32_t> children(uint32_t vertex) const { return children_[vertex]; }
    // In ascending order.
    std::vector<uint32_t> of_kind(VertexKind kind) const;
    // Returns the machine that contains the vertex, or the vertex itself if it is a machine;
    // no_vertex for a network.
    uint32_t machine_of(uint32_t vertex) const;
    // Returns the nearest NUMA node that contains the vertex; no_vertex if there is none.
    uint32_t numa_of(uint32_t vertex) const;

    bool is_empty() const { return vertices_.empty(); }
    bool is_connected() const; // false for an empty graph
    bool operator==(const Graph &other) const {
        return vertices_ == other.vertices_ && links_ == other.links_;
    }

private:
    std::vector<Vertex> vertices_;
    std::vector<Link> links_;
    std::vector<std::vector<uint32_t>> links_of_, children_; // by vertex
};

// Checks a graph from the source named `source`. Returns invalid_argument with a sentence that
// names the source and the part in these cases: there is no machine; a part is in one that comes
// after it or that cannot contain it; a bus id occurs twice in a machine; a part other than a NUMA
// node has a link to itself; a rate or latency is negative or no number; the graph is not
// connected.
Done check(const Graph &graph, std::string_view source);

// Returns a copy of the graph in which the machines have this name.
Graph named(const Graph &graph, std::string_view machine);

// Returns a text for messages, such as "gpu 3 (0000:1b:00.0)".
std::string describe(const Graph &graph, uint32_t vertex);

// ---- Best paths

struct Hop {
    uint32_t link = 0;
    bool is_forward = true; // from the link's `from` to its `to`

    auto operator<=>(const Hop &) const = default;
};

// How often each link is used in each direction.
using LinkUses = std::map<Hop, uint32_t>;

// The rate that is left of each link, for each direction by itself. A link whose rate is unknown
// starts with the typical rate of its class.
class Capacities {
public:
    explicit Capacities(const Graph &graph);

    double left(const Hop &hop) const { return left_[index(hop)]; }
    void take(const Hop &hop, double bytes_per_ns);

private:
    static size_t index(const Hop &hop) { return size_t{hop.link} * 2 + (hop.is_forward ? 0 : 1); }
    std::vector<double> left_;
};

struct Path {
    std::vector<Hop> hops;
    LinkClass link_class = LinkClass::shared_memory;
    double bytes_per_ns = 0; // of the narrowest link
    double latency_ns = 0;   // the sum of its links' latencies
    // Whether every link between machines has a known rate. Otherwise bytes_per_ns contains a
    // typical figure, and no prediction may be based on it.
    bool is_rate_known = true;

    uint32_t count(const Graph &graph, LinkClass link_class) const;
};

// A path passes through switches, processors and, between machines, NICs and networks, but through
// no third GPU. Between two parts of one machine it stays inside the machine. The path from a NUMA
// node to itself is the node's memory. Of equal paths, the one whose links have lower numbers is
// taken. Returns nothing if there is no path, or if each one has a link with nothing left in its
// direction.
std::optional<Path> find_path(const Graph &graph, const Capacities &capacities, uint32_t from,
                              uint32_t to);

// ---- One machine of a job

struct MachinePart {
    // Vertex 0 is the machine, without a name and with the number 0. Links to networks are left
    // out.
    Graph graph;
    std::vector<uint32_t> originals; // by vertex of the part: its number in the job's graph

    // Returns the part's number of a vertex of the job's graph; originals.size() if the vertex lies
    // outside of the machine.
    uint32_t number_of(uint32_t original) const;
};

MachinePart machine_part(const Graph &graph, uint32_t machine);

// ---- Text form

inline constexpr std::string_view graph_text_head = "qccl topology 1";
inline constexpr size_t most_graph_text_bytes = size_t{256} << 20;

// If the graph passes check(), parse_graph_text() returns the same graph again, to the last bit.
std::string print_graph_text(const Graph &graph);

// `source` names the text in errors. Returns a graph that has passed check(), or invalid_argument
// with a sentence that names the line.
Result<Graph> parse_graph_text(std::string_view text, std::string_view source);

} // namespace qccl
