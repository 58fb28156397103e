// Reads the properties of KFD's nodes and io_links; loads NVML's functions and asks for each GPU's
// links.
#include "topology/sources/gpu_link_source.hpp"

#include "base/module.hpp"
#include "base/text.hpp"
#include "topology/machine_graph.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

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

struct Node {
    fs::path folder;
    std::string bus_id, arch; // of a GPU
};

std::map<uint64_t, Node> gpu_nodes(const fs::path &nodes) {
    std::map<uint64_t, Node> gpus;
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

} // namespace qccl
