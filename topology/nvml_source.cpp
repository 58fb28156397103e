// Loads NVML's functions and asks for each GPU's links.
#include "topology/nvml_source.hpp"

#include "base/module.hpp"
#include "base/pci_address.hpp"
#include "topology/data_sheets.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace qccl {

namespace {

constexpr uint32_t most_links = 64; // per GPU; today's GPUs have 18
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
    for (uint32_t link = 0; link < most_links; link++)
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
