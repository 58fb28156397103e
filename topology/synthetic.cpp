// Builds the graph that a parsed description stands for.
#include "topology/synthetic.hpp"

#include "topology/synthetic_spec.hpp"

#include <algorithm>

namespace qccl {

namespace {

// Counts in floating point, so that numbers far above what a graph may have do not overflow.
struct Size {
    double vertices = 0, links = 0;

    void add(const Size &other, double times) {
        vertices += other.vertices * times;
        links += other.links * times;
    }
};

Size size_of(const NodeSpec &node, const PortSpec &port) {
    double nics = port.count;
    for (const PortSpec &each : node.nics) nics += each.count;
    const double numas = std::max({node.numas, node.packages, 1U});
    const double gpus = node.gpus;
    const double meshes = (node.nvlink != 0) + (node.xgmi != 0);
    return {2 + node.packages + numas + node.pci + gpus + nics,
            2 * numas + node.packages + node.pci + 2 * (gpus + nics) + meshes * gpus * gpus / 2};
}

Size size_of(const NetworkSpec &network) {
    Size size{1, 1};
    for (const GroupSpec &group : network.groups)
        size.add(group.rack.empty() ? size_of(group.node, network.port) : size_of(group.rack[0]),
                 group.count);
    return size;
}

bool has_nics(const GroupSpec &group, const PortSpec &port) {
    return !group.rack.empty() || port.count != 0 || !group.node.nics.empty();
}

// A single machine without NICs is a graph without a network.
bool is_lone_machine(const NetworkSpec &spec) {
    return spec.groups.size() == 1 && spec.groups[0].count == 1 &&
           !has_nics(spec.groups[0], spec.port);
}

Error refuse(const char *sentence) {
    return Error::make(Code::invalid_argument, "the topology: %s", sentence);
}

class SyntheticBuilder {
public:
    Result<Graph> build(const NetworkSpec &spec);

private:
    Done add_members(const NetworkSpec &spec, uint32_t network);
    Done add_rack(const NetworkSpec &rack, const PortSpec &port, uint32_t network);
    Done add_node(const NodeSpec &node, const PortSpec &port, uint32_t network);
    std::vector<uint32_t> add_numas(const NodeSpec &node, uint32_t machine);
    void connect_gpus(const NodeSpec &node, uint32_t machine, std::span<const uint32_t> gpus);
    void add_nics(const NodeSpec &node, const PortSpec &port, uint32_t network,
                  std::span<const uint32_t> outer);
    // Adds `count` parts, dealt out over `outer` in order, each behind a link of this kind.
    std::vector<uint32_t> deal(const Vertex &vertex, uint32_t count,
                               std::span<const uint32_t> outer, const Link &link);

    Graph graph_;
    uint32_t machines_ = 0, racks_ = 0;
};

std::vector<uint32_t> SyntheticBuilder::deal(const Vertex &vertex, uint32_t count,
                                             std::span<const uint32_t> outer, const Link &link) {
    std::vector<uint32_t> parts;
    for (uint32_t i = 0; i < count; i++) {
        Vertex part = vertex;
        Link to_outer = link;
        part.number = i;
        part.parent = to_outer.from = outer[size_t{i} * outer.size() / count];
        to_outer.to = graph_.add(std::move(part));
        graph_.connect(to_outer);
        parts.push_back(to_outer.to);
    }
    return parts;
}

std::vector<uint32_t> SyntheticBuilder::add_numas(const NodeSpec &node, uint32_t machine) {
    const Link inside{.link_class = LinkClass::cpu_interconnect, .bytes_per_ns = node.interconnect};
    std::vector<uint32_t> outer = {machine};
    if (node.packages != 0)
        outer = deal({.kind = VertexKind::package}, node.packages, outer, inside);
    const uint32_t count = std::max({node.numas, node.packages, 1U});
    std::vector<uint32_t> numas;
    uint32_t cpu = 0;
    for (uint32_t i = 0; i < count; i++) {
        Vertex numa{.kind = VertexKind::numa,
                    .parent = outer[size_t{i} * outer.size() / count],
                    .number = i};
        for (; cpu < uint64_t{i + 1} * node.cores / count; cpu++) numa.cpus.add(cpu);
        Link link = inside;
        link.from = numa.parent;
        link.to = graph_.add(std::move(numa));
        graph_.connect(link);
        graph_.connect({link.to, link.to, LinkClass::shared_memory, node.memory});
        numas.push_back(link.to);
    }
    return numas;
}

void SyntheticBuilder::connect_gpus(const NodeSpec &node, uint32_t machine,
                                    std::span<const uint32_t> gpus) {
    if (node.nvswitch != 0) {
        const uint32_t nvswitch = graph_.add({.kind = VertexKind::nvswitch, .parent = machine});
        for (const uint32_t gpu : gpus)
            graph_.connect({gpu, nvswitch, LinkClass::nvswitch, node.nvswitch});
    }
    for (const auto &[link_class, rate] :
         {std::pair(LinkClass::nvlink, node.nvlink), std::pair(LinkClass::xgmi, node.xgmi)}) {
        if (rate == 0) continue;
        const double to_each = rate / static_cast<double>(gpus.size() - 1);
        for (size_t i = 0; i < gpus.size(); i++)
            for (size_t j = i + 1; j < gpus.size(); j++)
                graph_.connect({gpus[i], gpus[j], link_class, to_each});
    }
}

void SyntheticBuilder::add_nics(const NodeSpec &node, const PortSpec &port, uint32_t network,
                                std::span<const uint32_t> outer) {
    std::vector<PortSpec> ports;
    for (const PortSpec &each : node.nics) ports.insert(ports.end(), each.count, each);
    if (ports.empty()) ports.assign(port.count, port);
    for (uint32_t i = 0; i < ports.size(); i++) {
        const bool has_rdma = ports[i].link_class == LinkClass::rdma;
        const uint32_t slot = outer[size_t{i} * outer.size() / ports.size()];
        const uint32_t nic = graph_.add({.kind = VertexKind::nic,
                                         .parent = slot,
                                         .number = i,
                                         .rdma = has_rdma,
                                         .gpudirect = has_rdma && node.gpus != 0});
        graph_.connect({slot, nic, LinkClass::pcie, node.pcie, 0, node.lanes});
        graph_.connect({nic, network, ports[i].link_class, ports[i].bytes_per_ns});
    }
}

Done SyntheticBuilder::add_node(const NodeSpec &node, const PortSpec &port, uint32_t network) {
    if (!node.nics.empty() && port.count != 0)
        return refuse("net: gives NICs to nodes that have nic: already; say one of the two");
    if (network != no_vertex && node.nics.empty() && port.count == 0)
        return refuse("nothing connects the nodes: say net:RATE behind them, as in net:50x8 or "
                      "net:tcp:1gbit, or nic:RATE in each");
    const uint32_t machine = graph_.add({.kind = VertexKind::machine,
                                         .parent = network,
                                         .name = "node" + std::to_string(machines_),
                                         .number = machines_});
    machines_++;
    const Link slot{.link_class = LinkClass::pcie, .bytes_per_ns = node.pcie, .width = node.lanes};
    std::vector<uint32_t> outer = add_numas(node, machine);
    if (node.pci != 0) outer = deal({.kind = VertexKind::pci}, node.pci, outer, slot);
    const auto gpus = deal({.kind = VertexKind::gpu, .arch = node.arch}, node.gpus, outer, slot);
    connect_gpus(node, machine, gpus);
    add_nics(node, port, network, outer);
    return {};
}

Done SyntheticBuilder::add_rack(const NetworkSpec &rack, const PortSpec &port, uint32_t network) {
    if (port.count == 0)
        return refuse("nothing connects the racks: say net:RATE behind them, as in net:400x4");
    const uint32_t inside = graph_.add({.kind = VertexKind::network,
                                        .parent = network,
                                        .name = "rack" + std::to_string(racks_),
                                        .number = racks_});
    racks_++;
    graph_.connect(
        {inside, network, port.link_class, port.bytes_per_ns * port.count, 0, port.count});
    return add_members(rack, inside);
}

Done SyntheticBuilder::add_members(const NetworkSpec &spec, uint32_t network) {
    for (const GroupSpec &group : spec.groups)
        for (uint32_t i = 0; i < group.count; i++)
            QCCL_TRY(group.rack.empty() ? add_node(group.node, spec.port, network)
                                        : add_rack(group.rack[0], spec.port, network));
    return {};
}

Result<Graph> SyntheticBuilder::build(const NetworkSpec &spec) {
    const Size size = size_of(spec);
    if (size.vertices > static_cast<double>(Graph::most_vertices) ||
        size.links > static_cast<double>(Graph::most_links))
        return Error::make(Code::invalid_argument,
                           "the topology has about %.3g parts and %.3g links; at most %zu and %zu "
                           "are possible",
                           size.vertices, size.links, Graph::most_vertices, Graph::most_links);
    if (is_lone_machine(spec)) {
        QCCL_TRY(add_node(spec.groups[0].node, spec.port, no_vertex));
    } else {
        QCCL_TRY(add_members(spec, graph_.add({.kind = VertexKind::network})));
    }
    QCCL_TRY(check(graph_, "the topology"));
    return std::move(graph_);
}

} // namespace

Result<Graph> parse_synthetic(std::string_view text) {
    QCCL_TRY(const NetworkSpec spec, parse_synthetic_spec(text));
    return SyntheticBuilder().build(spec);
}

} // namespace qccl
