// Reads hwloc's XML elements into an HwlocObject tree, and builds a graph from the XML elements of
// NCCL and RCCL.
#include "topology/formats/read_topology.hpp"

#include "topology/formats/xml_reader.hpp"
#include "topology/machine_graph.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

namespace qccl {

// ---- hwloc

namespace {

using Element = pugi::xml_node;

constexpr uint32_t most_hwloc_number =
    UINT32_MAX - 1; // hwloc writes UINT32_MAX for an unknown number

std::string_view info(Element object, std::string_view name) {
    for (const Element each : object.children("info"))
        if (each.attribute("name").value() == name) return each.attribute("value").value();
    return {};
}

uint32_t number_in(std::string_view text) {
    uint32_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

class HwlocFile {
public:
    HwlocFile(std::string_view text, std::string_view source)
        : reader_(text, source), source_(source) {}
    Result<Graph> read();

private:
    Done check_version(Element topology) const;
    Result<HwlocObject> object_of(Element element);
    Result<HwlocType> type_of(Element element) const;
    Result<HwlocType> os_device_type(Element element) const;
    Done read_pci(Element element, HwlocObject &object) const;

    XmlReader reader_;
    std::string source_;
    uint32_t version_ = 2;
    size_t objects_ = 0;
};

Done HwlocFile::check_version(Element topology) const {
    const std::string_view version = topology.attribute("version").value();
    if (version.starts_with("2.") || version.starts_with("3.")) return {};
    return reader_.refuse(topology, "the version is \"" + std::string(version.substr(0, 20)) +
                                        "\"; files of hwloc 2 and 3 can be read, and lstopo of "
                                        "hwloc 2 converts those of hwloc 1");
}

// The type of an OS device: hwloc 2 writes a number for each type, hwloc 3 a bit for each.
Result<HwlocType> HwlocFile::os_device_type(Element element) const {
    QCCL_TRY(const auto type, reader_.count(element, "osdev_type", 0, most_hwloc_number));
    if (!type) return reader_.refuse(element, "osdev_type is missing");
    const bool is_rdma = version_ == 2 ? *type == 3 : (*type & 32) != 0;
    const bool is_net = version_ == 2 ? *type == 2 : (*type & 16) != 0;
    return is_rdma ? HwlocType::rdma_device : is_net ? HwlocType::net_device : HwlocType::other;
}

Result<HwlocType> HwlocFile::type_of(Element element) const {
    const std::string_view type = element.attribute("type").value();
    if (type == "Package") return HwlocType::package;
    if (type == "NUMANode") return HwlocType::numa;
    if (type == "PCIDev") return HwlocType::pci_device;
    if (type == "OSDev") return os_device_type(element);
    if (type != "Bridge") return HwlocType::other;
    const std::string_view ends = element.attribute("bridge_type").value();
    return ends.starts_with('0') ? HwlocType::host_bridge : HwlocType::pci_bridge;
}

// pci_type is "0302 [10de:2330] [10de:16c1] a1 00": the class, then vendor and device.
Done HwlocFile::read_pci(Element element, HwlocObject &object) const {
    object.bus_id = element.attribute("pci_busid").value();
    std::array<unsigned, 4> id{};
    if (std::sscanf(object.bus_id.c_str(), "%x:%x:%x.%x", &id[0], &id[1], &id[2], &id[3]) != 4 ||
        object.bus_id.size() > 16)
        return reader_.refuse(element, "pci_busid is \"" + object.bus_id.substr(0, 40) +
                                           "\"; expected one such as 0000:1b:00.0");
    unsigned pci_class = 0, vendor = 0;
    const char *const type = element.attribute("pci_type").value();
    if (std::sscanf(type, "%4x [%4x:", &pci_class, &vendor) != 2)
        return reader_.refuse(element, "pci_type is \"" + std::string(type).substr(0, 40) +
                                           "\"; expected a class and a vendor such as "
                                           "\"0302 [10de:2330]\"");
    object.pci_class = static_cast<uint16_t>(pci_class);
    object.pci_vendor = static_cast<uint16_t>(vendor);
    const std::string_view speed = element.attribute("pci_link_speed").value();
    if (speed.find_first_not_of("0.") == std::string_view::npos) return {}; // hwloc's "unknown"
    QCCL_TRY(const auto rate, reader_.measure(element, "pci_link_speed", ""));
    object.bytes_per_ns = static_cast<double>(static_cast<float>(rate.value_or(0))); // as hwloc
    return {};
}

Result<HwlocObject> HwlocFile::object_of(Element element) {
    if (++objects_ > Graph::most_vertices)
        return reader_.refuse(element, "the file has more than " +
                                           std::to_string(Graph::most_vertices) + " objects");
    HwlocObject object;
    QCCL_TRY(object.type, type_of(element));
    object.name = element.attribute("name").value();
    if (element.attribute("cpuset")) {
        const auto cpus = CpuSet::parse(element.attribute("cpuset").value());
        if (!cpus)
            return reader_.refuse(element,
                                  "cpuset is no mask of processors such as 0xff,0xffffffff");
        object.cpus = *cpus;
    }
    if (object.type == HwlocType::package || object.type == HwlocType::numa) {
        QCCL_TRY(const auto number, reader_.count(element, "os_index", 0, UINT32_MAX));
        object.number = number.value_or(0) == UINT32_MAX ? 0 : number.value_or(0);
    }
    if (object.type == HwlocType::package) {
        object.name = info(element, "CPUModel");
        object.cpu_vendor = info(element, "CPUVendor");
        object.cpu_family = number_in(info(element, "CPUFamilyNumber"));
        object.cpu_model = number_in(info(element, "CPUModelNumber"));
    }
    const bool is_bridge = object.type == HwlocType::pci_bridge;
    if (is_bridge || object.type == HwlocType::pci_device) {
        QCCL_TRY(read_pci(element, object));
        object.name = info(element, "PCIDevice");
    }
    for (const Element child : element.children("object")) {
        QCCL_TRY(HwlocObject below, object_of(child));
        object.children.push_back(std::move(below));
    }
    return object;
}

Result<Graph> HwlocFile::read() {
    QCCL_TRY(reader_.read());
    const Element topology = reader_.document().child("topology");
    const Element machine = topology.child("object");
    if (std::string_view(machine.attribute("type").value()) != "Machine")
        return invalid_argument(
            "%.100s: no object of type Machine stands in an element `topology`; a "
            "file of hwloc has both",
            source_.c_str());
    QCCL_TRY(check_version(topology));
    version_ = topology.attribute("version").value()[0] == '3' ? 3 : 2;
    QCCL_TRY(HwlocObject root, object_of(machine));
    root.name = info(topology, "HostName");
    if (root.name.empty()) root.name = info(machine, "HostName");
    Graph graph = with_network(graph_of(root));
    QCCL_TRY(check(graph, source_));
    return graph;
}

} // namespace

Result<Graph> parse_hwloc_xml(std::string_view text, std::string_view source) {
    if (text.size() > most_hwloc_xml_bytes)
        return invalid_argument("%.100s has %zu bytes; a topology of hwloc has at most %zu",
                                std::string(source).c_str(), text.size(), most_hwloc_xml_bytes);
    return HwlocFile(text, source).read();
}

// ---- NCCL and RCCL

namespace {

constexpr uint32_t most_number = 1U << 20;

struct BusIdUse {
    uint32_t parts = 0; // in the file that have the id
    bool is_taken = false;
};

// A link of a GPU to another one, which may come later in the file.
struct PeerLink {
    uint32_t gpu = 0;
    std::string target;
    LinkClass link_class = LinkClass::nvlink;
    uint32_t count = 0;
};

// One machine of the file.
struct NcclHost {
    uint32_t vertex = no_vertex;
    uint32_t nvswitch = no_vertex;
    uint32_t next_gpu = 0, next_nic = 0;  // for parts without a number
    std::map<std::string, uint32_t> gpus; // by bus id
    std::map<std::string, BusIdUse> bus_ids;
    std::set<std::pair<std::string, uint32_t>> ports; // name and number
    std::vector<PeerLink> peers;
};

std::string lower(std::string text) {
    for (char &letter : text)
        if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter + ('a' - 'A'));
    return text;
}

std::string bus_id_of(Element pci) { return lower(pci.attribute("busid").value()); }

bool is_of_class(Element pci, std::string_view first_digits) {
    return std::string_view(pci.attribute("class").value()).starts_with(first_digits);
}
bool is_gpu(Element pci) {
    if (pci.child("gpu")) return true;
    return !pci.child("nic") && !pci.child("pci") &&
           (is_of_class(pci, "0x03") || is_of_class(pci, "0x12"));
}
bool is_nic(Element pci) {
    if (pci.child("nic")) return true;
    return !pci.child("gpu") && !pci.child("pci") && is_of_class(pci, "0x02");
}

std::string arch_of(Element gpu) {
    const std::string gcn = gpu.attribute("gcn").value();
    if (gcn.empty()) {
        const std::string sm = gpu.attribute("sm").value();
        return sm.empty() ? "" : "sm" + sm;
    }
    if (gcn.starts_with("gfx")) return gcn.substr(0, gcn.find(':'));
    return gcn == "910" ? "gfx90a" : "gfx" + gcn;
}

class NcclFile {
public:
    NcclFile(std::string_view text, std::string_view source)
        : reader_(text, source), source_(source) {}
    Result<Graph> read();

private:
    // The part that contains another one, and the link that leads there.
    struct ParentLink {
        uint32_t parent;
        double rate;
        uint32_t lanes;
    };

    Done survey();
    void survey_pci(Element parent, NcclHost &host, bool &has_nic);
    NcclHost &host_of(Element cpu);
    Result<uint32_t> add(Element element, Vertex vertex);
    Result<uint32_t> add_behind(Element element, const ParentLink &slot, Vertex vertex);
    Done add_cpu(Element cpu);
    Done add_pci(Element pci, uint32_t parent, NcclHost &host);
    Done add_devices(Element pci, ParentLink slot, const std::string &bus_id, NcclHost &host);
    Result<uint32_t> add_gpu(Element gpu, const ParentLink &slot, const std::string &bus_id,
                             NcclHost &host);
    Done add_gpu_links(Element gpu, uint32_t vertex, NcclHost &host);
    Done add_port(Element net, const ParentLink &slot, const std::string &bus_id, NcclHost &host);
    Result<Link> link_of_port(Element net) const;
    void connect_peers(const NcclHost &host);

    XmlReader reader_;
    std::string source_;
    Graph graph_;
    uint32_t network_ = no_vertex;
    std::map<std::pair<ptrdiff_t, std::string>, NcclHost> hosts_; // by system and host_hash
};

NcclHost &NcclFile::host_of(Element cpu) {
    return hosts_[{cpu.parent().offset_debug(), cpu.attribute("host_hash").value()}];
}

void NcclFile::survey_pci(Element parent, NcclHost &host, bool &has_nic) {
    has_nic = has_nic || is_nic(parent);
    for (const Element pci : parent.children("pci")) {
        host.bus_ids[bus_id_of(pci)].parts++;
        survey_pci(pci, host, has_nic);
    }
}

// Finds the machines, whether a network contains them, and how often each bus id occurs.
Done NcclFile::survey() {
    bool has_nic = false;
    for (const Element system : reader_.document().children("system"))
        for (const Element cpu : system.children("cpu")) survey_pci(cpu, host_of(cpu), has_nic);
    if (hosts_.empty())
        return invalid_argument(
            "%.100s: no element `cpu` stands in an element `system`; a topology of "
            "NCCL or RCCL has both",
            source_.c_str());
    if (has_nic || hosts_.size() > 1) network_ = graph_.add({.kind = VertexKind::network});
    uint32_t number = 0;
    for (auto &[key, host] : hosts_)
        host.vertex =
            graph_.add({.kind = VertexKind::machine, .parent = network_, .number = number++});
    return {};
}

Result<uint32_t> NcclFile::add(Element element, Vertex vertex) {
    if (graph_.vertices().size() >= Graph::most_vertices)
        return reader_.refuse(element, "the file has more than " +
                                           std::to_string(Graph::most_vertices) + " parts");
    return graph_.add(std::move(vertex));
}

Result<uint32_t> NcclFile::add_behind(Element element, const ParentLink &slot, Vertex vertex) {
    vertex.parent = slot.parent;
    QCCL_TRY(const uint32_t number, add(element, std::move(vertex)));
    graph_.connect({slot.parent, number, LinkClass::pcie, slot.rate, 0, slot.lanes});
    return number;
}

Done NcclFile::add_cpu(Element cpu) {
    NcclHost &host = host_of(cpu);
    Vertex numa{.kind = VertexKind::numa, .parent = host.vertex};
    if (std::string_view(cpu.attribute("numaid").value()) != "-1") {
        QCCL_TRY(const auto number, reader_.count(cpu, "numaid", 0, most_number));
        numa.number = number.value_or(0);
    }
    if (cpu.attribute("affinity")) {
        const auto cpus = CpuSet::parse(cpu.attribute("affinity").value());
        if (!cpus)
            return reader_.refuse(cpu, "affinity is no mask of processors such as ff,ffffffff");
        numa.cpus = *cpus;
    }
    QCCL_TRY(const auto family, reader_.count(cpu, "familyid", 0, most_number));
    QCCL_TRY(const auto model, reader_.count(cpu, "modelid", 0, most_number));
    // NCCL puts the extended family above the family; CPUID's family is their sum.
    const uint32_t sum = family.value_or(0) % 16 + family.value_or(0) / 16;
    const double rate =
        cpu_interconnect_rate(cpu.attribute("vendor").value(), sum, model.value_or(0));
    QCCL_TRY(const uint32_t vertex, add(cpu, std::move(numa)));
    graph_.connect({host.vertex, vertex, LinkClass::cpu_interconnect, rate});
    graph_.connect({vertex, vertex, LinkClass::shared_memory});
    for (const Element part : cpu.children()) {
        if (std::string_view(part.name()) == "pci") QCCL_TRY(add_pci(part, vertex, host));
        if (std::string_view(part.name()) != "nic") continue;
        for (const Element net : part.children("net"))
            QCCL_TRY(add_port(net, {host.vertex, 0, 1}, "", host));
    }
    return {};
}

Done NcclFile::add_pci(Element pci, uint32_t parent, NcclHost &host) {
    const std::string bus_id = bus_id_of(pci);
    static constexpr size_t longest_bus_id = 32;
    if (bus_id.empty()) return reader_.refuse(pci, "busid is missing");
    if (bus_id.size() > longest_bus_id) return reader_.refuse(pci, "busid is too long");
    QCCL_TRY(const auto speed, reader_.measure(pci, "link_speed", "GT/s"));
    QCCL_TRY(auto lanes, reader_.count(pci, "link_width", 0, UINT8_MAX));
    if (lanes == UINT8_MAX) lanes = 0;
    const ParentLink slot{parent, pcie_rate(speed.value_or(0), lanes.value_or(0)),
                          std::max(lanes.value_or(1), 1U)};
    if (is_gpu(pci) || is_nic(pci)) QCCL_TRY(add_devices(pci, slot, bus_id, host));
    if (!pci.child("pci")) return {};
    const BusIdUse &use = host.bus_ids[bus_id];
    const bool has_id = use.parts == 1 && !use.is_taken;
    QCCL_TRY(const uint32_t bridge,
             add_behind(pci, slot,
                        {.kind = VertexKind::pci, .bus_id = has_id ? bus_id : std::string()}));
    for (const Element below : pci.children("pci")) QCCL_TRY(add_pci(below, bridge, host));
    return {};
}

// If several devices share a slot, the slot becomes a part of its own.
Done NcclFile::add_devices(Element pci, ParentLink slot, const std::string &bus_id,
                           NcclHost &host) {
    std::vector<Element> gpus, nets;
    for (const Element gpu : pci.children("gpu")) gpus.push_back(gpu);
    for (const Element nic : pci.children("nic"))
        for (const Element net : nic.children("net")) nets.push_back(net);
    if (gpus.empty() && nets.empty()) (is_gpu(pci) ? gpus : nets).push_back(pci);
    BusIdUse &use = host.bus_ids[bus_id];
    std::string own_id = use.is_taken ? std::string() : bus_id;
    use.is_taken = true;
    if (gpus.size() + nets.size() > 1) {
        QCCL_TRY(const uint32_t shared,
                 add_behind(pci, slot, {.kind = VertexKind::pci, .bus_id = std::move(own_id)}));
        slot.parent = shared;
        own_id.clear();
    }
    for (const Element gpu : gpus) {
        if (gpus.size() == 1 && host.gpus.contains(bus_id))
            return reader_.refuse(pci, "another GPU has this busid");
        QCCL_TRY(const uint32_t vertex, add_gpu(gpu, slot, own_id, host));
        host.gpus.emplace(bus_id, vertex);
    }
    for (const Element net : nets) QCCL_TRY(add_port(net, slot, own_id, host));
    return {};
}

Result<uint32_t> NcclFile::add_gpu(Element gpu, const ParentLink &slot, const std::string &bus_id,
                                   NcclHost &host) {
    QCCL_TRY(const auto number, reader_.count(gpu, "dev", 0, most_number));
    QCCL_TRY(const uint32_t vertex, add_behind(gpu, slot,
                                               {.kind = VertexKind::gpu,
                                                .bus_id = bus_id,
                                                .number = number.value_or(host.next_gpu),
                                                .arch = arch_of(gpu)}));
    host.next_gpu = graph_.vertex(vertex).number + 1;
    QCCL_TRY(add_gpu_links(gpu, vertex, host));
    return vertex;
}

Done NcclFile::add_gpu_links(Element gpu, uint32_t vertex, NcclHost &host) {
    static constexpr uint32_t most_links = 1024;
    const std::string arch = graph_.vertex(vertex).arch;
    uint32_t to_switch = 0;
    for (const Element link : gpu.children()) {
        const std::string_view kind = link.name();
        if (kind != "nvlink" && kind != "xgmi" && kind != "c2c") continue;
        QCCL_TRY(const auto count, reader_.count(link, "count", 1, most_links));
        if (!count) return reader_.refuse(link, "count is missing");
        const std::string_view target_class = link.attribute("tclass").value();
        if (kind == "c2c") {
            QCCL_TRY(const auto megabytes, reader_.measure(link, "bw", ""));
            graph_.connect({vertex, graph_.numa_of(vertex), LinkClass::nvlink,
                            megabytes.value_or(0) / 1000 * *count, 0, *count});
        } else if (kind == "nvlink" && target_class.starts_with("0x0680")) {
            to_switch += *count;
        } else {
            const LinkClass link_class = kind == "xgmi" ? LinkClass::xgmi : LinkClass::nvlink;
            host.peers.push_back(
                {vertex, lower(link.attribute("target").value()), link_class, *count});
        }
    }
    if (to_switch == 0) return {};
    if (host.nvswitch == no_vertex) {
        QCCL_TRY(host.nvswitch, add(gpu, {.kind = VertexKind::nvswitch, .parent = host.vertex}));
    }
    graph_.connect(
        {vertex, host.nvswitch, LinkClass::nvswitch, nvlink_rate(arch) * to_switch, 0, to_switch});
    return {};
}

Result<Link> NcclFile::link_of_port(Element net) const {
    static constexpr double most_megabits = 1e7;
    QCCL_TRY(const auto port, reader_.count(net, "port", 0, most_number));
    QCCL_TRY(const auto speed, reader_.measure(net, "speed", ""));
    double megabits = speed.value_or(0);
    while (megabits > most_megabits) megabits /= 1000;
    // A `pci` without `net` is its own port; its class tells InfiniBand (0x0207) from Ethernet.
    const bool has_rdma = port.value_or(0) > 0 || is_of_class(net, "0x0207");
    return Link{.to = network_,
                .link_class = has_rdma ? LinkClass::rdma : LinkClass::tcp,
                .bytes_per_ns = megabits / 8000};
}

Done NcclFile::add_port(Element net, const ParentLink &slot, const std::string &bus_id,
                        NcclHost &host) {
    QCCL_TRY(const auto number, reader_.count(net, "dev", 0, most_number));
    QCCL_TRY(Link link, link_of_port(net));
    Vertex nic{.kind = VertexKind::nic,
               .parent = slot.parent,
               .name = net.attribute("name").value(),
               .bus_id = bus_id,
               .number = number.value_or(host.next_nic),
               .rdma = link.link_class == LinkClass::rdma,
               .gpudirect = std::string_view(net.attribute("gdr").value()) == "1"};
    if (!nic.name.empty() && !host.ports.insert({nic.name, nic.number}).second) return {};
    host.next_nic = nic.number + 1;
    if (slot.parent == host.vertex) {
        QCCL_TRY(link.from, add(net, std::move(nic)));
        graph_.connect({host.vertex, link.from, LinkClass::shared_memory});
    } else {
        QCCL_TRY(link.from, add_behind(net, slot, std::move(nic)));
    }
    graph_.connect(link);
    return {};
}

// Both ends of a link name the link, which is added once.
void NcclFile::connect_peers(const NcclHost &host) {
    std::vector<Link> links;
    std::map<std::pair<uint32_t, uint32_t>, size_t> known; // by GPUs, the lower first
    for (const PeerLink &peer : host.peers) {
        const auto target = host.gpus.find(peer.target);
        if (target == host.gpus.end() || target->second == peer.gpu) continue;
        const auto ends = std::minmax(peer.gpu, target->second);
        const auto [place, is_new] = known.emplace(ends, links.size());
        if (is_new) links.push_back({ends.first, ends.second, peer.link_class, 0, 0, peer.count});
        Link &link = links[place->second];
        link.width = std::min(link.width, peer.count);
    }
    for (Link &link : links) {
        const std::string &arch = graph_.vertex(link.from).arch;
        link.bytes_per_ns =
            link.width * (link.link_class == LinkClass::xgmi ? xgmi_rate(arch) : nvlink_rate(arch));
        graph_.connect(link);
    }
}

Result<Graph> NcclFile::read() {
    QCCL_TRY(reader_.read());
    QCCL_TRY(survey());
    for (const Element system : reader_.document().children("system"))
        for (const Element cpu : system.children("cpu")) QCCL_TRY(add_cpu(cpu));
    for (const auto &[key, host] : hosts_) connect_peers(host);
    QCCL_TRY(check(graph_, source_));
    return std::move(graph_);
}

} // namespace

Result<Graph> parse_nccl_xml(std::string_view text, std::string_view source) {
    if (text.size() > most_nccl_xml_bytes)
        return invalid_argument("%.100s has %zu bytes; a topology of NCCL or RCCL has at most %zu",
                                std::string(source).c_str(), text.size(), most_nccl_xml_bytes);
    return NcclFile(text, source).read();
}

} // namespace qccl
