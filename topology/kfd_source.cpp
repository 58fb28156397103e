// Reads the properties of KFD's nodes and io_links.
#include "topology/kfd_source.hpp"

#include "base/pci_address.hpp"
#include "topology/data_sheets.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace qccl {

namespace {

namespace fs = std::filesystem;

constexpr uint32_t most_nodes = 1024, most_links = 1024; // per machine; per node
constexpr uint64_t xgmi_type = 11;                       // of an io_link, by CRAT
constexpr uint64_t weight_of_hop = 15;                   // of an io_link, for one hop of xGMI
constexpr double megabytes = 1e-3;                       // 1 MB/s in bytes per nanosecond
constexpr double most_rate = 1e4;                        // a file may give no more

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
        for (uint32_t i = 0; i < most_links; i++) {
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

} // namespace qccl
