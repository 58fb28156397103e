// Holds the tables of the data sheets, makes a machine's graph from the tree of hwloc's objects,
// and adds the drivers' links and architectures to it.
#include "topology/machine_graph.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <set>

namespace qccl {

// ---- Rates from data sheets

// PCI Express Base Specification: 8b/10b code up to 5 GT/s, 128b/130b up to 32 GT/s, beyond that
// flits of 256 bytes with 236 bytes of payload.
double pcie_rate(double gigatransfers, uint32_t lanes) {
    const double code = gigatransfers <= 5    ? 8.0 / 10
                        : gigatransfers <= 32 ? 128.0 / 130
                                              : 236.0 / 256;
    return gigatransfers * code * lanes / 8;
}

// NVIDIA's data sheets give the sum of both ways of all links: P100 160 GB/s with 4 links, V100 300
// with 6, A40 112.5 with 4 (sm86), A100 600 with 12, H100 900 with 18, B200 1800 with 18.
double nvlink_rate(std::string_view arch) {
    if (!arch.starts_with("sm")) return 0;
    const auto number = parse_number<uint32_t>(arch.substr(2));
    if (!number || *number < 60) return 0;
    if (*number == 86) return 14.0625;
    return *number < 70 ? 20 : *number < 100 ? 25 : 50;
}

// A link has 16 lanes. AMD's data sheets give the sum of both ways: Instinct MI50 184 GB/s with 2
// links, MI100 276 with 3, MI250X 800 with 8 (25 GT/s), MI300X 896 with 7 (32 GT/s), MI355X 1075
// with 7 (38.4 GT/s).
double xgmi_rate(std::string_view arch) {
    struct XgmiRate {
        std::string_view arch;
        double rate;
    };
    static constexpr XgmiRate rows[] = {{"gfx906", 46},  {"gfx908", 46}, {"gfx90a", 50},
                                        {"gfx940", 64},  {"gfx941", 64}, {"gfx942", 64},
                                        {"gfx950", 76.8}};
    for (const XgmiRate &row : rows)
        if (row.arch == arch) return row.rate;
    return 0;
}

// Number and speed of links from ark.intel.com and AMD's EPYC product briefs, for the model with
// the most links. Each transfer moves 16 bits.
double cpu_interconnect_rate(std::string_view vendor, uint32_t family, uint32_t model) {
    struct CpuInterconnect {
        std::string_view vendor;
        uint32_t family, first_model, last_model;
        double links, gigatransfers;
    };
    static constexpr double bytes_each = 2;
    static constexpr CpuInterconnect rows[] = {
        {"GenuineIntel", 6, 0x3f, 0x3f, 2, 9.6},   // Haswell: QPI
        {"GenuineIntel", 6, 0x4f, 0x4f, 2, 9.6},   // Broadwell: QPI
        {"GenuineIntel", 6, 0x55, 0x55, 3, 10.4},  // Skylake, Cascade Lake: UPI
        {"GenuineIntel", 6, 0x6a, 0x6a, 3, 11.2},  // Ice Lake
        {"GenuineIntel", 6, 0x8f, 0x8f, 4, 16},    // Sapphire Rapids: UPI 2.0
        {"GenuineIntel", 6, 0xcf, 0xcf, 4, 20},    // Emerald Rapids
        {"GenuineIntel", 6, 0xad, 0xad, 6, 24},    // Granite Rapids
        {"AuthenticAMD", 0x17, 0x30, 0x3f, 4, 16}, // Rome: Infinity Fabric
        {"AuthenticAMD", 0x19, 0x00, 0x0f, 4, 18}, // Milan
        {"AuthenticAMD", 0x19, 0x10, 0x1f, 4, 32}, // Genoa
        {"AuthenticAMD", 0x1a, 0x00, 0x1f, 4, 32}, // Turin
    };
    for (const CpuInterconnect &row : rows)
        if (row.vendor == vendor && row.family == family && row.first_model <= model &&
            model <= row.last_model)
            return row.links * row.gigatransfers * bytes_each;
    return 0;
}

// ---- hwloc's objects

namespace {

constexpr uint16_t nvidia = 0x10de, amd = 0x1002; // vendor ids of PCI-SIG

uint32_t class_byte(const HwlocObject &device) { return device.pci_class >> 8; }

bool is_gpu(const HwlocObject &device) {
    static constexpr uint32_t display = 0x03, accelerator = 0x12;
    return device.type == HwlocType::pci_device &&
           (device.pci_vendor == nvidia || device.pci_vendor == amd) &&
           (class_byte(device) == display || class_byte(device) == accelerator);
}

bool has(const HwlocObject &device, HwlocType type) {
    return std::ranges::any_of(device.children,
                               [&](const HwlocObject &child) { return child.type == type; });
}

bool is_nic(const HwlocObject &device) {
    static constexpr uint32_t network = 0x02;
    static constexpr uint16_t infiniband = 0x0c06; // class of old adapters
    return device.type == HwlocType::pci_device &&
           (class_byte(device) == network || device.pci_class == infiniband ||
            has(device, HwlocType::net_device) || has(device, HwlocType::rdma_device));
}

bool leads_to_a_device(const HwlocObject &object) {
    return is_gpu(object) || is_nic(object) ||
           std::ranges::any_of(object.children, leads_to_a_device);
}

// Returns the name by which users and UCX know the NIC.
std::string nic_name(const HwlocObject &device) {
    std::string name;
    for (const HwlocObject &child : device.children) {
        if (child.type == HwlocType::rdma_device) return child.name;
        if (child.type == HwlocType::net_device && name.empty()) name = child.name;
    }
    return name;
}

class HwlocGraph {
public:
    explicit HwlocGraph(const HwlocObject &root) : root_(root) {}

    Graph build() {
        graph_.add({.kind = VertexKind::machine, .name = root_.name});
        add_processors(root_, 0);
        if (graph_.of_kind(VertexKind::numa).empty())
            add_numa({.cpus = root_.cpus}, packages_.size() == 1 ? packages_[0] : 0);
        add_devices(root_, {0, root_.cpus});
        return std::move(graph_);
    }

private:
    // What is around an object of hwloc: the vertex that contains it, and the processors near to
    // it.
    struct Surrounding {
        uint32_t vertex;
        const CpuSet &cpus;
    };

    void add_processors(const HwlocObject &object, uint32_t parent);
    void add_numa(const HwlocObject &object, uint32_t parent);
    void add_devices(const HwlocObject &object, const Surrounding &around);
    void add_pci(const HwlocObject &object, uint32_t parent, double rate);
    void add_behind(const HwlocObject &object, uint32_t parent, double rate, Vertex vertex);
    uint32_t root_complex(const Surrounding &around) const;

    const HwlocObject &root_;
    Graph graph_;
    std::vector<uint32_t> packages_; // in the order of the tree
    size_t next_package_ = 0;
    std::set<std::string> bus_ids_;
    uint32_t gpus_ = 0, nics_ = 0;
};

void HwlocGraph::add_numa(const HwlocObject &object, uint32_t parent) {
    const uint32_t numa = graph_.add(
        {.kind = VertexKind::numa, .parent = parent, .number = object.number, .cpus = object.cpus});
    graph_.connect({parent, numa, LinkClass::cpu_interconnect});
    graph_.connect({numa, numa, LinkClass::shared_memory});
}

void HwlocGraph::add_processors(const HwlocObject &object, uint32_t parent) {
    for (const HwlocObject &child : object.children) {
        uint32_t around = parent;
        if (child.type == HwlocType::package) {
            around = graph_.add({.kind = VertexKind::package,
                                 .parent = parent,
                                 .name = child.name,
                                 .number = child.number});
            graph_.connect(
                {parent, around, LinkClass::cpu_interconnect,
                 cpu_interconnect_rate(child.cpu_vendor, child.cpu_family, child.cpu_model)});
            packages_.push_back(around);
        }
        if (child.type == HwlocType::numa) add_numa(child, parent);
        add_processors(child, around);
    }
}

// Returns the smallest NUMA node that has all processors near to a host bridge. If several nodes
// share the bridge, returns the part that contains them.
uint32_t HwlocGraph::root_complex(const Surrounding &around) const {
    uint32_t best = around.vertex;
    for (const uint32_t numa : graph_.of_kind(VertexKind::numa)) {
        const CpuSet &cpus = graph_.vertex(numa).cpus;
        if (around.cpus.is_empty() || !cpus.contains(around.cpus)) continue;
        if (best == around.vertex || cpus.size() < graph_.vertex(best).cpus.size()) best = numa;
    }
    return best;
}

void HwlocGraph::add_devices(const HwlocObject &object, const Surrounding &around) {
    for (const HwlocObject &child : object.children) {
        switch (child.type) {
        case HwlocType::package:
            add_devices(child, {packages_[next_package_++], child.cpus});
            break;
        case HwlocType::numa:
        case HwlocType::other: add_devices(child, {around.vertex, child.cpus}); break;
        case HwlocType::host_bridge:
            for (const HwlocObject &below : child.children) add_pci(below, root_complex(around), 0);
            break;
        case HwlocType::pci_bridge:
        case HwlocType::pci_device: add_pci(child, root_complex(around), 0); break;
        case HwlocType::net_device:
        case HwlocType::rdma_device: break;
        }
    }
}

// Damaged files may give a bus id twice; the first part keeps it.
void HwlocGraph::add_behind(const HwlocObject &object, uint32_t parent, double rate,
                            Vertex vertex) {
    vertex.parent = parent;
    if (bus_ids_.insert(object.bus_id).second) vertex.bus_id = object.bus_id;
    graph_.connect({parent, graph_.add(std::move(vertex)), LinkClass::pcie, rate});
}

// `rate`: of the link above, if a bridge on the way has given one.
void HwlocGraph::add_pci(const HwlocObject &object, uint32_t parent, double rate) {
    if (object.bytes_per_ns > 0) rate = object.bytes_per_ns;
    if (is_gpu(object))
        add_behind(object, parent, rate,
                   {.kind = VertexKind::gpu, .name = object.name, .number = gpus_++});
    else if (is_nic(object))
        add_behind(object, parent, rate,
                   {.kind = VertexKind::nic,
                    .name = nic_name(object),
                    .number = nics_++,
                    .rdma = has(object, HwlocType::rdma_device)});
    std::vector<const HwlocObject *> below;
    for (const HwlocObject &child : object.children)
        if (leads_to_a_device(child)) below.push_back(&child);
    if (below.size() > 1) {
        const auto bridge = static_cast<uint32_t>(graph_.vertices().size());
        add_behind(object, parent, rate, {.kind = VertexKind::pci});
        parent = bridge;
        rate = 0;
    }
    for (const HwlocObject *const child : below) add_pci(*child, parent, rate);
}

} // namespace

Graph graph_of(const HwlocObject &root) { return HwlocGraph(root).build(); }

Graph with_network(const Graph &machine) {
    const std::vector<uint32_t> nics = machine.of_kind(VertexKind::nic);
    if (nics.empty()) return machine;
    Graph graph;
    graph.add({.kind = VertexKind::network});
    const uint32_t first = graph.add(machine, 0);
    for (const uint32_t nic : nics)
        graph.connect(
            {first + nic, 0, machine.vertex(nic).rdma ? LinkClass::rdma : LinkClass::tcp});
    return graph;
}

Graph plain_machine(const CpuSet &cpus) {
    return graph_of({.cpus = cpus, .children = {{.type = HwlocType::package, .cpus = cpus}}});
}

// ---- Links between GPUs

namespace {

using Gpus = std::map<std::string, uint32_t, std::less<>>; // vertices by bus id

Gpus gpus_of(const Graph &machine) {
    Gpus gpus;
    for (const uint32_t gpu : machine.of_kind(VertexKind::gpu))
        if (!machine.vertex(gpu).bus_id.empty()) gpus.emplace(machine.vertex(gpu).bus_id, gpu);
    return gpus;
}

bool is_between_gpus(const Graph &graph, const Link &link) {
    const auto is_inside = [&](uint32_t vertex) {
        const VertexKind kind = graph.vertex(vertex).kind;
        return kind == VertexKind::gpu || kind == VertexKind::nvswitch;
    };
    return is_inside(link.from) && is_inside(link.to);
}

// By their two ends, the lower vertex first.
using Links = std::map<std::pair<uint32_t, uint32_t>, Link>;

void add(Links &links, const Link &link) {
    const auto ends = std::minmax(link.from, link.to);
    const auto [place, is_new] = links.emplace(ends, link);
    Link &known = place->second;
    known.from = ends.first;
    known.to = ends.second;
    if (is_new) return;
    known.width = std::min(known.width, link.width);
    known.bytes_per_ns = std::min(known.bytes_per_ns, link.bytes_per_ns);
}

} // namespace

Graph with_gpu_details(const Graph &machine, const GpuDetails &found) {
    const Gpus gpus = gpus_of(machine);
    Graph graph;
    for (Vertex vertex : machine.vertices()) {
        const auto arch = found.arch.find(vertex.bus_id);
        const bool is_told = vertex.kind == VertexKind::gpu && arch != found.arch.end();
        if (is_told && vertex.arch.empty()) vertex.arch = arch->second;
        graph.add(std::move(vertex));
    }
    for (const Link &link : machine.links()) graph.connect(link);
    const bool has_links = std::ranges::any_of(
        machine.links(), [&](const Link &link) { return is_between_gpus(machine, link); });
    if (has_links) return graph;
    Links links;
    const auto nvswitch = static_cast<uint32_t>(machine.vertices().size());
    for (const GpuLink &link : found.links) {
        const auto from = gpus.find(link.from), to = gpus.find(link.to);
        if (from == gpus.end() || from == to || (to == gpus.end() && !link.to.empty())) continue;
        add(links, {from->second, link.to.empty() ? nvswitch : to->second, link.link_class,
                    link.bytes_per_ns, 0, link.width});
    }
    const bool has_switch =
        std::ranges::any_of(links, [&](const auto &link) { return link.second.to == nvswitch; });
    if (has_switch) graph.add({.kind = VertexKind::nvswitch, .parent = 0});
    for (const auto &[ends, link] : links) graph.connect(link);
    return graph;
}

} // namespace qccl
