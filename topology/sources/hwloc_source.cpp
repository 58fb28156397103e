// Loads hwloc's topology and copies the objects that matter into an HwlocObject tree.
#include "topology/sources/machine_sources.hpp"

#include "base/text.hpp"
#include "topology/machine_graph.hpp"

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include <hwloc.h>
#include <sched.h>

namespace qccl {

namespace {

using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

std::string_view text_or_none(const char *text) { return text ? text : ""; }

uint32_t number_in(std::string_view text) {
    uint32_t number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

// Components that would open GPUs or the display, which takes long and may wake a GPU. Also that of
// libpciaccess, which leaks memory and finds the same as the component for Linux.
constexpr const char *unwanted_components[] = {"cuda",      "nvml", "opencl", "rsmi",
                                               "levelzero", "gl",   "pci"};

// Caches and cores are of no use here, and large machines have thousands of them.
constexpr hwloc_obj_type_t unwanted_types[] = {
    HWLOC_OBJ_CORE,     HWLOC_OBJ_DIE,      HWLOC_OBJ_L1CACHE,  HWLOC_OBJ_L2CACHE,
    HWLOC_OBJ_L3CACHE,  HWLOC_OBJ_L4CACHE,  HWLOC_OBJ_L5CACHE,  HWLOC_OBJ_L1ICACHE,
    HWLOC_OBJ_L2ICACHE, HWLOC_OBJ_L3ICACHE, HWLOC_OBJ_MEMCACHE, HWLOC_OBJ_MISC};

Topology load() {
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) return {nullptr, hwloc_topology_destroy};
    Topology topology(raw, hwloc_topology_destroy);
    hwloc_topology_set_flags(
        raw, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING | HWLOC_TOPOLOGY_FLAG_NO_DISTANCES |
                 HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS | HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
    hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    for (const hwloc_obj_type_t type : unwanted_types)
        hwloc_topology_set_type_filter(raw, type, HWLOC_TYPE_FILTER_KEEP_NONE);
    // hwloc refuses the name of a component that it does not have; that does no harm.
    for (const char *const name : unwanted_components)
        hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, name);
    // If hwloc reads the variable itself, it ignores a file that it cannot read and looks at the
    // machine.
    const char *const file = getenv("HWLOC_XMLFILE");
    // Only a regular file is read: a pipe would block hwloc for ever.
    std::error_code error;
    if (file && *file &&
        (!std::filesystem::is_regular_file(file, error) || hwloc_topology_set_xml(raw, file) != 0))
        topology.reset();
    if (topology && hwloc_topology_load(raw) != 0) topology.reset();
    return topology;
}

CpuSet cpus_of(hwloc_const_cpuset_t set) {
    CpuSet cpus;
    if (!set || hwloc_bitmap_weight(set) < 0) return cpus; // an infinite set is of no machine
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
        cpus.add(static_cast<uint32_t>(cpu));
    return cpus;
}

HwlocType type_of(hwloc_obj_t object) {
    switch (object->type) {
    case HWLOC_OBJ_PACKAGE: return HwlocType::package;
    case HWLOC_OBJ_NUMANODE: return HwlocType::numa;
    case HWLOC_OBJ_PCI_DEVICE: return HwlocType::pci_device;
    case HWLOC_OBJ_BRIDGE:
        return object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI ? HwlocType::pci_bridge
                                                                          : HwlocType::host_bridge;
    case HWLOC_OBJ_OS_DEVICE:
        return object->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS ? HwlocType::rdma_device
               : object->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK   ? HwlocType::net_device
                                                                       : HwlocType::other;
    default: return HwlocType::other;
    }
}

std::string_view info(hwloc_obj_t object, const char *name) {
    return text_or_none(hwloc_obj_get_info_by_name(object, name));
}

void read_pci(const hwloc_obj_attr_u::hwloc_pcidev_attr_s &pci, HwlocObject &object) {
    object.bus_id = pci_address(pci.domain, pci.bus, pci.dev, pci.func);
    object.pci_class = pci.class_id;
    object.pci_vendor = pci.vendor_id;
    object.bytes_per_ns = pci.linkspeed > 0 ? static_cast<double>(pci.linkspeed) : 0;
}

HwlocObject object_of(hwloc_topology_t topology, hwloc_obj_t from) {
    HwlocObject object{.type = type_of(from), .cpus = cpus_of(from->cpuset)};
    object.name = text_or_none(from->name);
    if (from->os_index != HWLOC_UNKNOWN_INDEX) object.number = from->os_index;
    if (object.type == HwlocType::package) {
        object.name = info(from, "CPUModel");
        object.cpu_vendor = info(from, "CPUVendor");
        object.cpu_family = number_in(info(from, "CPUFamilyNumber"));
        object.cpu_model = number_in(info(from, "CPUModelNumber"));
    }
    if (object.type == HwlocType::pci_device || object.type == HwlocType::pci_bridge) {
        read_pci(object.type == HwlocType::pci_device ? from->attr->pcidev
                                                      : from->attr->bridge.upstream.pci,
                 object);
        object.name = info(from, "PCIDevice");
    }
    for (hwloc_obj_t child = nullptr; (child = hwloc_get_next_child(topology, from, child));)
        if (child->type != HWLOC_OBJ_PU) object.children.push_back(object_of(topology, child));
    return object;
}

std::string told_by_environment() {
    for (const char *const name : {"HWLOC_XMLFILE", "HWLOC_SYNTHETIC", "HWLOC_FSROOT"})
        if (const char *const value = getenv(name); value && *value)
            return std::string(name) + "=" + value;
    return {};
}

Graph with_links_of_gpus(const Graph &machine) {
    std::vector<std::string> bus_ids;
    for (const uint32_t gpu : machine.of_kind(VertexKind::gpu))
        if (!machine.vertex(gpu).bus_id.empty()) bus_ids.push_back(machine.vertex(gpu).bus_id);
    if (bus_ids.size() < 2) return machine;
    GpuDetails found = find_xgmi();
    GpuDetails nvidias = find_nvlinks(bus_ids);
    found.arch.merge(nvidias.arch);
    found.links.insert(found.links.end(), nvidias.links.begin(), nvidias.links.end());
    return with_gpu_details(machine, found);
}

} // namespace

CpuSet allowed_cpus() {
    static constexpr size_t sets = CpuSet::most_cpus / CPU_SETSIZE;
    const auto allowed = std::make_unique<std::array<cpu_set_t, sets>>();
    CpuSet cpus;
    if (sched_getaffinity(0, sizeof *allowed, allowed->data()) != 0) return cpus;
    for (uint32_t set = 0; set < sets; set++) {
        if (CPU_COUNT(&(*allowed)[set]) == 0) continue;
        for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &(*allowed)[set])) cpus.add(set * CPU_SETSIZE + cpu);
    }
    return cpus;
}

DiscoveredMachine discover_machine(GpuLinks links) {
    DiscoveredMachine found{.graph = {}, .instead_of_hardware = told_by_environment()};
    const std::string whence =
        found.instead_of_hardware.empty() ? "hwloc" : found.instead_of_hardware;
    Done sound = Error::make(Code::system_error, "%.200s: hwloc %s cannot read it", whence.c_str(),
                             hwloc_version().c_str());
    if (const Topology topology = load()) {
        HwlocObject root = object_of(topology.get(), hwloc_get_root_obj(topology.get()));
        root.name = info(hwloc_get_root_obj(topology.get()), "HostName");
        found.graph = graph_of(root);
        sound = check(found.graph, whence);
    }
    if (sound && links == GpuLinks::asked_for && found.instead_of_hardware.empty()) {
        Graph linked = with_links_of_gpus(found.graph);
        if (check(linked, "the GPUs' drivers")) found.graph = std::move(linked);
    }
    if (sound) return found;
    found.warning = std::string(sound.error().text) +
                    "; this machine counts as one NUMA node with no GPU and no NIC";
    found.graph = plain_machine(allowed_cpus());
    return found;
}

std::string hwloc_version() { return HWLOC_VERSION; }

} // namespace qccl
