// Reads the properties of KFD's nodes and io_links; loads NVML's functions and asks for each GPU's
// links. Reads /sys/class/net and /sys/class/infiniband, and decides which ports a job can use.

#include "base/module.hpp"
#include "base/text.hpp"
#include "topology/machine_graph.hpp"
#include "topology/sources/machine_sources.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string_view>

#include <net/if.h>

namespace qccl {

// ---- AMD

namespace {

namespace fs = std::filesystem;

constexpr uint32_t most_nodes = 1024, most_io_links = 1024; // per machine; per node
constexpr uint64_t xgmi_type = 11;                          // of an io_link, by CRAT
constexpr uint64_t weight_of_hop = 15;                      // of an io_link, for one hop of xGMI
constexpr double megabytes = 1e-3;                          // 1 MB/s in bytes per nanosecond
constexpr double most_rate = 1e4;                           // a file may give no more

// From lines such as "gfx_target_version 90402".
using Properties = std::map<std::string, uint64_t, std::less<>>;

Properties properties_in(const fs::path &file) {
    constexpr size_t most_lines = 1000;
    Properties properties;
    std::ifstream stream(file);
    std::string name;
    uint64_t value = 0;
    while (properties.size() < most_lines && stream >> name >> value) properties[name] = value;
    return properties;
}

uint64_t value_of(const Properties &properties, std::string_view name) {
    const auto found = properties.find(name);
    return found == properties.end() ? 0 : found->second;
}

// location_id has function, device and bus in 3, 5 and 8 bits.
std::string bus_id_of(const Properties &gpu) {
    const auto domain = static_cast<unsigned>(value_of(gpu, "domain")),
               place = static_cast<unsigned>(value_of(gpu, "location_id"));
    return pci_address(domain, place >> 8 & 0xFF, place >> 3 & 0x1F, place & 7);
}

// 90402 is gfx942 and 90010 gfx90a: two digits each for the minor version and the stepping.
std::string arch_of(const Properties &gpu) {
    const uint64_t version = value_of(gpu, "gfx_target_version");
    if (version == 0 || version >= 1000000) return {};
    char text[64];
    std::snprintf(text, sizeof text, "gfx%" PRIu64 "%" PRIx64 "%" PRIx64, version / 10000,
                  version / 100 % 100, version % 100);
    return text;
}

struct KfdNode {
    fs::path folder;
    std::string bus_id, arch; // of a GPU
};

std::map<uint64_t, KfdNode> gpu_nodes(const fs::path &nodes) {
    std::map<uint64_t, KfdNode> gpus;
    for (uint32_t number = 0; number < most_nodes; number++) {
        const fs::path folder = nodes / std::to_string(number);
        std::error_code error;
        if (!fs::is_directory(folder, error)) break;
        const Properties properties = properties_in(folder / "properties");
        if (value_of(properties, "simd_count") == 0) continue; // a node of processors
        gpus[number] = {folder, bus_id_of(properties), arch_of(properties)};
    }
    return gpus;
}

} // namespace

GpuDetails find_xgmi(const std::string &root) {
    const auto gpus = gpu_nodes(fs::path(root) / "sys/class/kfd/kfd/topology/nodes");
    GpuDetails found;
    for (const auto &[number, gpu] : gpus) {
        if (!gpu.arch.empty()) found.arch[gpu.bus_id] = gpu.arch;
        const double one = xgmi_rate(gpu.arch);
        for (uint32_t i = 0; i < most_io_links; i++) {
            const Properties link =
                properties_in(gpu.folder / "io_links" / std::to_string(i) / "properties");
            if (link.empty()) break;
            const auto peer = gpus.find(value_of(link, "node_to"));
            if (value_of(link, "type") != xgmi_type || peer == gpus.end()) continue;
            if (value_of(link, "weight") > weight_of_hop) continue; // through other GPUs
            // The driver gives the rate of one direction; older drivers give none.
            double said = static_cast<double>(value_of(link, "max_bandwidth")) * megabytes;
            if (said > most_rate) said = 0;
            const double width = one > 0 && said > 0 ? std::round(said / one) : 1;
            found.links.push_back({.from = gpu.bus_id,
                                   .to = peer->second.bus_id,
                                   .link_class = LinkClass::xgmi,
                                   .bytes_per_ns = said > 0 ? said : one,
                                   .width = static_cast<uint32_t>(std::clamp(width, 1.0, 64.0))});
        }
    }
    return found;
}

// ---- NVIDIA

namespace {

constexpr uint32_t most_nvlinks = 64; // per GPU; today's GPUs have 18
constexpr uint32_t is_active = 1;
constexpr uint32_t switch_type = 2; // of the device at the other end; 0 is a GPU

// NVML's layout. A changed layout gets a new name in NVML, and the old one stays valid.
struct PciInfo {
    std::array<char, 16> old_bus_id;
    unsigned domain, bus, device, ids, subsystem_ids;
    std::array<char, 32> bus_id;
};
using Handle = void *;

// The functions of the library. Each returns 0 on success.
class Nvml {
public:
    static std::optional<Nvml> open(const char *library) {
        Nvml nvml;
        const bool has_all = find(library, "nvmlInit_v2", nvml.init_) &&
                             find(library, "nvmlShutdown", nvml.shut_down_) &&
                             find(library, "nvmlDeviceGetHandleByPciBusId_v2", nvml.handle_) &&
                             find(library, "nvmlDeviceGetCudaComputeCapability", nvml.version_) &&
                             find(library, "nvmlDeviceGetNvLinkState", nvml.state_) &&
                             find(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", nvml.remote_);
        (void)find( // older drivers do not have it
            library, "nvmlDeviceGetNvLinkRemoteDeviceType", nvml.remote_type_);
        if (!has_all || nvml.init_() != 0) return std::nullopt;
        return nvml;
    }
    void close() const { (void)shut_down_(); }

    std::optional<Handle> gpu(const std::string &bus_id) const {
        Handle found = nullptr;
        return handle_(bus_id.c_str(), &found) == 0 ? std::optional(found) : std::nullopt;
    }
    std::string arch(Handle gpu) const {
        int major = 0, minor = 0;
        if (version_(gpu, &major, &minor) != 0) return {};
        return "sm" + std::to_string(major * 10 + minor);
    }
    bool has_active(Handle gpu, uint32_t link) const {
        uint32_t state = 0;
        return state_(gpu, link, &state) == 0 && state == is_active;
    }
    // Returns nothing if the driver cannot tell.
    std::optional<bool> leads_to_switch(Handle gpu, uint32_t link) const {
        uint32_t type = 0;
        if (!remote_type_ || remote_type_(gpu, link, &type) != 0) return std::nullopt;
        return type == switch_type;
    }
    std::string remote_bus_id(Handle gpu, uint32_t link) const {
        PciInfo info{};
        if (remote_(gpu, link, &info) != 0) return {};
        return pci_address(info.domain, info.bus, info.device);
    }

private:
    template <class Function>
    static bool find(const char *library, const char *name, Function &function) {
        const auto found = find_in_module(library, name);
        if (found) function = reinterpret_cast<Function>(*found);
        return found.is_ok();
    }

    int (*init_)() = nullptr;
    int (*shut_down_)() = nullptr;
    int (*handle_)(const char *, Handle *) = nullptr;
    int (*version_)(Handle, int *, int *) = nullptr;
    int (*state_)(Handle, unsigned, unsigned *) = nullptr;
    int (*remote_)(Handle, unsigned, PciInfo *) = nullptr;
    int (*remote_type_)(Handle, unsigned, unsigned *) = nullptr;
};

// Returns the bus id of the GPU that a link leads to; empty: a switch. If the driver cannot tell,
// any device that is no GPU of this machine counts as a switch. Returns nothing if the driver gives
// neither.
std::optional<std::string> other_end(const Nvml &nvml, Handle gpu, uint32_t link,
                                     const std::vector<std::string> &gpus) {
    const auto is_switch = nvml.leads_to_switch(gpu, link);
    if (is_switch.value_or(false)) return std::string();
    std::string peer = nvml.remote_bus_id(gpu, link);
    if (peer.empty()) return std::nullopt;
    const bool is_gpu = std::ranges::find(gpus, peer) != gpus.end();
    return is_gpu || is_switch ? peer : std::string();
}

void add_links(const Nvml &nvml, Handle gpu, const std::string &bus_id,
               const std::vector<std::string> &gpus, GpuDetails &found) {
    std::map<std::string, uint32_t> count; // by the other end
    for (uint32_t link = 0; link < most_nvlinks; link++)
        if (nvml.has_active(gpu, link))
            if (const auto end = other_end(nvml, gpu, link, gpus)) count[*end]++;
    const double one = nvlink_rate(found.arch[bus_id]);
    for (const auto &[peer, links] : count)
        found.links.push_back({.from = bus_id,
                               .to = peer,
                               .link_class = peer.empty() ? LinkClass::nvswitch : LinkClass::nvlink,
                               .bytes_per_ns = one * links,
                               .width = links});
}

} // namespace

GpuDetails find_nvlinks(const std::vector<std::string> &bus_ids, const char *library) {
    GpuDetails found;
    const auto nvml = Nvml::open(library);
    if (!nvml) return found;
    for (const std::string &bus_id : bus_ids) {
        const auto gpu = nvml->gpu(bus_id);
        if (!gpu) continue;
        found.arch[bus_id] = nvml->arch(*gpu);
        add_links(*nvml, *gpu, bus_id, bus_ids, found);
    }
    nvml->close();
    return found;
}

namespace {

namespace fs = std::filesystem;

constexpr double megabits = 1.0 / 8000, gigabits = 1.0 / 8; // per second, in bytes per nanosecond
constexpr size_t most_ports = 4096; // hosts of containers have hundreds of interfaces

std::string first_line(const fs::path &path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::vector<std::string> names_in(const fs::path &folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
        if (names.size() == most_ports) break;
        names.push_back(entry->path().filename());
    }
    std::ranges::sort(names);
    return names;
}

bool is_there(const fs::path &path) {
    std::error_code error;
    return fs::exists(path, error);
}

// Returns the last part of the path that is a PCI address; parts of some drivers may follow it.
std::string bus_id_of(const fs::path &device) {
    std::error_code error;
    std::string found;
    for (const fs::path &part : fs::canonical(device, error)) {
        const std::string name = part;
        unsigned id[4];
        char rest = 0;
        if (name.size() <= 16 &&
            std::sscanf(name.c_str(), "%x:%x:%x.%x%c", &id[0], &id[1], &id[2], &id[3], &rest) == 4)
            found = name;
    }
    return found;
}

std::optional<double> number_in(const std::string &line) {
    double number = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (error != std::errc() || !(number > 0) || !(number < 1e7)) return std::nullopt;
    return number;
}

class Interfaces {
public:
    explicit Interfaces(const std::string &root) : folder_(fs::path(root) / "sys/class/net") {}

    std::vector<std::string> names() const { return names_in(folder_); }
    NetworkPort port(const std::string &name) const;
    double rate(const std::string &name) const;
    // Whether sysfs, which shows the network namespace that it was mounted in, means the interface
    // of this process's namespace.
    bool is_own(const std::string &name) const {
        return first_line(folder_ / name / "ifindex") ==
               std::to_string(if_nametoindex(name.c_str()));
    }

private:
    std::vector<std::string> lower(const std::string &name) const;
    std::string base(std::string name) const;
    bool is_hardware(const std::string &name) const { return is_there(folder_ / name / "device"); }

    fs::path folder_;
};

std::vector<std::string> Interfaces::lower(const std::string &name) const {
    static constexpr std::string_view prefix = "lower_";
    std::vector<std::string> found;
    for (const std::string &entry : names_in(folder_ / name))
        if (entry.starts_with(prefix)) found.push_back(entry.substr(prefix.size()));
    return found;
}

// Returns the interface below that carries the data, as long as there is only one.
std::string Interfaces::base(std::string name) const {
    static constexpr int most_depth = 8; // links may form a loop in a damaged tree
    for (int depth = 0; depth < most_depth && !is_hardware(name); depth++) {
        const auto below = lower(name);
        if (below.size() != 1) break;
        name = below[0];
    }
    return name;
}

double Interfaces::rate(const std::string &name) const {
    const std::string base_interface = base(name);
    if (!is_hardware(base_interface) && !is_there(folder_ / base_interface / "bonding")) return 0;
    return number_in(first_line(folder_ / base_interface / "speed")).value_or(0) * megabits;
}

NetworkPort Interfaces::port(const std::string &name) const {
    static constexpr const char *loopback = "772"; // ARPHRD_LOOPBACK
    const fs::path own = folder_ / name;
    const std::string state = first_line(own / "operstate"), base_interface = base(name);
    return {.name = name,
            .bus_id =
                is_hardware(base_interface) ? bus_id_of(folder_ / base_interface / "device") : "",
            .is_up = state == "up" || state == "unknown",
            .is_loopback = first_line(own / "type") == loopback,
            .is_internal = is_there(own / "bridge") &&
                           std::ranges::none_of(lower(name),
                                                [&](const std::string &each) {
                                                    return is_hardware(base(each)) ||
                                                           is_there(folder_ / each / "bonding");
                                                }),
            .bytes_per_ns = rate(name)};
}

void list_rdma_ports(const std::string &root, std::vector<NetworkPort> &ports) {
    const fs::path folder = fs::path(root) / "sys/class/infiniband";
    for (const std::string &device : names_in(folder))
        for (const std::string &number : names_in(folder / device / "ports")) {
            const fs::path own = folder / device / "ports" / number;
            const auto value = number_in(number);
            if (!value) continue;
            ports.push_back(
                {.name = device,
                 .bus_id = bus_id_of(folder / device / "device"),
                 .number = static_cast<uint32_t>(*value),
                 .is_up = first_line(own / "state").starts_with("4:"),
                 // "200 Gb/sec (4X HDR)"
                 .bytes_per_ns = number_in(first_line(own / "rate")).value_or(0) * gigabits});
        }
}

// Whether the list has the port, as "mlx5_0:1" or as "mlx5_0".
bool is_listed(const NetworkPort &port, std::string_view devices) {
    if (devices.empty() || devices == "all") return true;
    return std::ranges::any_of(words_of(devices, ","), [&](std::string_view device) {
        return device == port.name || device == port.name + ":" + std::to_string(port.number);
    });
}

// Whether UCX may use the transports of RDMA adapters: by these names, or by names such as rc_mlx5.
bool allows_rdma(std::string_view transports) {
    if (transports.empty()) return true;
    const bool excludes = transports.front() == '^';
    const std::vector<std::string_view> words = words_of(transports.substr(excludes ? 1 : 0), ",");
    const auto has = [&](std::string_view name) {
        return std::ranges::find(words, name) != words.end();
    };
    if (excludes) return !has("all") && !has("ib") && !(has("rc") && has("ud") && has("dc"));
    return std::ranges::any_of(words, [](std::string_view word) {
        if (word.starts_with('\\')) word.remove_prefix(1); // means exactly this transport
        const std::string_view family = word.substr(0, word.find('_'));
        return word == "all" || word == "ib" || family == "rc" || family == "ud" || family == "dc";
    });
}

bool is_usable(const NetworkPort &port, const NetworkChoice &choice) {
    if (!port.is_up || port.is_loopback || port.is_internal) return false;
    if (!is_listed(port, choice.devices)) return false;
    if (port.is_rdma()) return allows_rdma(choice.transports);
    return std::ranges::find(choice.interfaces, port.name) != choice.interfaces.end();
}

uint32_t nic_at(const Graph &graph, const std::string &bus_id) {
    for (const uint32_t nic : graph.of_kind(VertexKind::nic))
        if (!bus_id.empty() && graph.vertex(nic).bus_id == bus_id) return nic;
    return no_vertex;
}

uint32_t add_nic(Graph &graph, uint32_t machine, const NetworkPort &port) {
    const uint32_t nic =
        graph.add({.kind = VertexKind::nic,
                   .parent = machine,
                   .name = port.name,
                   .number = static_cast<uint32_t>(graph.of_kind(VertexKind::nic).size()),
                   .rdma = port.is_rdma()});
    graph.connect({machine, nic, LinkClass::shared_memory});
    return nic;
}

// The ports of one adapter are one NIC with one link to the network, that of the first port.
void connect(Graph &graph, uint32_t machine, uint32_t network, const NetworkPort &port) {
    uint32_t nic = nic_at(graph, port.bus_id);
    if (nic == no_vertex) nic = add_nic(graph, machine, port);
    for (const uint32_t link : graph.links_of(nic))
        if (graph.link(link).other(nic) == network) return;
    graph.connect(
        {nic, network, port.is_rdma() ? LinkClass::rdma : LinkClass::tcp, port.bytes_per_ns});
}

} // namespace

std::vector<NetworkPort> list_ports(const std::string &root) {
    std::vector<NetworkPort> ports;
    const Interfaces interfaces(root);
    for (const std::string &name : interfaces.names())
        if (root != "/" || interfaces.is_own(name)) ports.push_back(interfaces.port(name));
    list_rdma_ports(root, ports);
    std::ranges::stable_sort(ports, {}, &NetworkPort::name);
    return ports;
}

double interface_rate(const std::string &name, const std::string &root) {
    const Interfaces interfaces(root);
    return root != "/" || interfaces.is_own(name) ? interfaces.rate(name) : 0;
}

NetworkChoice network_choice(const Settings &settings) {
    const auto or_ucx = [](const std::optional<std::string> &setting, const char *variable) {
        const char *const value = std::getenv(variable);
        return setting ? *setting : std::string(value ? value : "");
    };
    return {.interfaces = {},
            .devices = or_ucx(settings.ucx_devices, "UCX_NET_DEVICES"),
            .transports = or_ucx(settings.ucx_transports, "UCX_TLS")};
}

Graph connect_to_network(const Graph &machine, const std::vector<NetworkPort> &ports,
                         const NetworkChoice &choice) {
    std::vector<NetworkPort> usable;
    for (const NetworkPort &port : ports)
        if (is_usable(port, choice)) usable.push_back(port);
    if (usable.empty()) return machine;
    const bool has_rdma = std::ranges::any_of(usable, &NetworkPort::is_rdma);
    // The first port of an adapter counts, so the fastest one comes first.
    std::ranges::stable_sort(usable, std::greater(), &NetworkPort::bytes_per_ns);
    Graph graph;
    const uint32_t network = graph.add({.kind = VertexKind::network});
    const uint32_t inside = graph.add(machine, network);
    for (const NetworkPort &port : usable)
        if (port.is_rdma() == has_rdma) connect(graph, inside, network, port);
    return graph;
}

} // namespace qccl
