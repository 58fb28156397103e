// Makes a machine's graph from the tree of hwloc's objects.
#include "topology/hwloc_tree.hpp"

#include "topology/data_sheets.hpp"

#include <algorithm>
#include <set>

namespace qccl {

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

} // namespace qccl
