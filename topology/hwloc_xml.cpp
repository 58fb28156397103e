// Reads hwloc's XML elements into an HwlocObject tree.
#include "topology/hwloc_xml.hpp"

#include "topology/hwloc_tree.hpp"
#include "topology/xml_reader.hpp"

#include <array>
#include <charconv>
#include <cstdio>

namespace qccl {

namespace {

using Element = pugi::xml_node;

constexpr uint32_t most_number = UINT32_MAX - 1; // hwloc writes UINT32_MAX for an unknown number

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
    QCCL_TRY(const auto type, reader_.count(element, "osdev_type", 0, most_number));
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
        return Error::make(Code::invalid_argument,
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
        return Error::make(Code::invalid_argument,
                           "%.100s has %zu bytes; a topology of hwloc has at most %zu",
                           std::string(source).c_str(), text.size(), most_hwloc_xml_bytes);
    return HwlocFile(text, source).read();
}

} // namespace qccl
