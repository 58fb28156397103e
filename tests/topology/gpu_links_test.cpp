// Tests topology/sources/gpu_link_source and with_gpu_details() of topology/machine_graph: links
// between GPUs that drivers report come into the graph, and damaged or missing reports add nothing.
#include "fake_nvml.h"
#include "sysfs_tree.hpp"
#include "tests/kit/qtest.hpp"

#include "topology/machine_graph.hpp"
#include "topology/sources/machine_sources.hpp"

#include <algorithm>

using namespace qccl;

namespace {

constexpr const char *bus_ids[] = {"0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0001:9d:00.0"};

// Returns a machine with GPUs of one vendor, all below one NUMA node.
Graph machine_with(uint32_t gpus, uint16_t vendor) {
    HwlocObject numa{.type = HwlocType::numa, .cpus = *CpuSet::parse("f")};
    HwlocObject bridge{.type = HwlocType::host_bridge};
    for (uint32_t i = 0; i < gpus; i++)
        bridge.children.push_back({.type = HwlocType::pci_device,
                                   .bus_id = bus_ids[i],
                                   .pci_class = 0x0302,
                                   .pci_vendor = vendor});
    HwlocObject package{.type = HwlocType::package, .cpus = numa.cpus, .children = {numa, bridge}};
    return graph_of({.cpus = numa.cpus, .children = {package}});
}

struct Found {
    LinkClass link_class;
    double bytes_per_ns;
    uint32_t width;
    bool operator==(const Found &) const = default;
};

// Returns the links between two GPUs, given by their numbers, or between a GPU and the switch (-1).
std::vector<Found> between(const Graph &graph, int a, int b) {
    const auto gpus = graph.of_kind(VertexKind::gpu),
               switches = graph.of_kind(VertexKind::nvswitch);
    const auto vertex = [&](int gpu) {
        return gpu < 0 ? switches.at(0) : gpus.at(static_cast<size_t>(gpu));
    };
    std::vector<Found> found;
    for (const Link &link : graph.links())
        if (std::minmax(link.from, link.to) == std::minmax(vertex(a), vertex(b)))
            found.push_back({link.link_class, link.bytes_per_ns, link.width});
    return found;
}

void the_less_counts_where_ends_differ() {
    const Graph machine = machine_with(3, 0x1002);
    GpuDetails found;
    found.arch = {{bus_ids[0], "gfx942"}};
    found.links = {{bus_ids[0], bus_ids[1], LinkClass::xgmi, 64, 1},
                   {bus_ids[1], bus_ids[0], LinkClass::xgmi, 50, 2},
                   {bus_ids[2], bus_ids[2], LinkClass::xgmi, 50, 1},
                   {bus_ids[0], bus_ids[3], LinkClass::xgmi, 64, 1}, // no such GPU in the machine
                   {"", bus_ids[1], LinkClass::xgmi, 64, 1}};
    const Graph graph = with_gpu_details(machine, found);
    CHECK(check(graph, "drivers"));
    CHECK_EQ(graph.links().size(), machine.links().size() + 1);
    CHECK(between(graph, 0, 1) == std::vector<Found>({{LinkClass::xgmi, 50, 1}}));
    const auto gpus = graph.of_kind(VertexKind::gpu);
    CHECK(graph.vertex(gpus[0]).arch == "gfx942" && graph.vertex(gpus[1]).arch.empty());
    // What the graph already knows stays.
    found.links = {{bus_ids[0], bus_ids[2], LinkClass::xgmi, 64, 1}};
    CHECK(with_gpu_details(graph, found) == graph);
    CHECK(with_gpu_details(machine, {}) == machine);
}

void add_node(const SysfsTree &sysfs, int number, const std::string &properties,
              const std::vector<std::string> &links = {}) {
    const std::string folder = "class/kfd/kfd/topology/nodes/" + std::to_string(number);
    sysfs.write(folder + "/properties", properties);
    for (size_t i = 0; i < links.size(); i++)
        sysfs.write(folder + "/io_links/" + std::to_string(i) + "/properties", links[i]);
}

std::string io_link(int type, int to, int megabytes, int hops = 1) {
    return "type " + std::to_string(type) + "\nversion_major 0\nnode_to " + std::to_string(to) +
           "\nweight " + std::to_string(15 * hops) + "\nmax_bandwidth " + std::to_string(megabytes);
}

// Linux lists processors first, and the links to them beside those to other GPUs.
void kfd_names_rates_and_versions() {
    const SysfsTree sysfs;
    const std::string gpu = "cpu_cores_count 0\nsimd_count 440\ngfx_target_version ";
    add_node(sysfs, 0, "cpu_cores_count 64\nsimd_count 0", {io_link(2, 1, 16000)});
    add_node(sysfs, 1, gpu + "90010\nlocation_id 6912\ndomain 0",
             {io_link(2, 0, 16000), io_link(11, 2, 200000), io_link(11, 3, 50000)});
    add_node(sysfs, 2, gpu + "90010\nlocation_id 17152\ndomain 0",
             {io_link(11, 1, 200000), io_link(11, 3, 0, 2)}); // through the GPU between them
    add_node(sysfs, 3, gpu + "90402\nlocation_id 40192\ndomain 1",
             {io_link(11, 1, 0), io_link(11, 9, 64000)});
    const GpuDetails found = find_xgmi(sysfs.root());
    CHECK(found.arch == (std::map<std::string, std::string>{{bus_ids[0], "gfx90a"},
                                                            {bus_ids[1], "gfx90a"},
                                                            {bus_ids[3], "gfx942"}}));
    CHECK(found.links == std::vector<GpuLink>({{bus_ids[0], bus_ids[1], LinkClass::xgmi, 200, 4},
                                               {bus_ids[0], bus_ids[3], LinkClass::xgmi, 50, 1},
                                               {bus_ids[1], bus_ids[0], LinkClass::xgmi, 200, 4},
                                               {bus_ids[3], bus_ids[0], LinkClass::xgmi, 64, 1}}));
    CHECK(find_xgmi("/nowhere").links.empty());
}

void damaged_files_of_kfd_say_nothing() {
    const SysfsTree sysfs;
    add_node(sysfs, 0, "simd_count much\nlocation_id 6912", {io_link(11, 0, 1)});
    add_node(sysfs, 1, "simd_count 4\nlocation_id 18446744073709551615\ngfx_target_version -1",
             {"type\n11", io_link(11, 1, 1 << 30)});
    add_node(sysfs, 2, "simd_count 4\nlocation_id 6912", {io_link(11, 1, 1 << 30)});
    const GpuDetails found = find_xgmi(sysfs.root());
    CHECK(found.arch.empty());
    for (const GpuLink &link : found.links) CHECK(link.bytes_per_ns == 0 && link.width == 1);
    CHECK(with_gpu_details(machine_with(2, 0x1002), found) == machine_with(2, 0x1002));
}

std::vector<std::string> first_ids(size_t gpus) { return {bus_ids, bus_ids + gpus}; }

// Two links lead to one GPU. One link leads to the third GPU and is not active.
void nvml_counts_the_links_between_gpus() {
    fake_nvml_begin(1, 1);
    for (int gpu = 0; gpu < 3; gpu++) fake_nvml_add_gpu(bus_ids[gpu], 8, 0);
    for (int link = 0; link < 2; link++) {
        fake_nvml_add_link(0, link, bus_ids[1], 0, 1);
        fake_nvml_add_link(1, link, bus_ids[0], 0, 1);
    }
    fake_nvml_add_link(0, 2, bus_ids[2], 0, 0);
    fake_nvml_add_link(2, 0, bus_ids[0], 0, 0);
    const GpuDetails found = find_nvlinks(first_ids(3), fake_nvml_path());
    const Graph graph = with_gpu_details(machine_with(3, 0x10DE), found);
    CHECK(check(graph, "drivers"));
    CHECK(between(graph, 0, 1) == std::vector<Found>({{LinkClass::nvlink, 50, 2}}));
    CHECK(between(graph, 0, 2).empty() && between(graph, 1, 2).empty());
    CHECK(graph.vertex(graph.of_kind(VertexKind::gpu)[2]).arch == "sm80");
    CHECK_EQ(fake_nvml_users(), 0);
}

// Switches are found even if the driver is too old to report what a link leads to: a link's end
// that is none of the GPUs is a switch.
void nvml_finds_switches() {
    for (const int tells_types : {1, 0}) {
        fake_nvml_begin(tells_types, 1);
        for (int gpu = 0; gpu < 4; gpu++) {
            fake_nvml_add_gpu(bus_ids[gpu], 9, 0);
            for (int link = 0; link < 18; link++)
                fake_nvml_add_link(gpu, link, "0000:07:00.0", 2, 1);
        }
        const Graph graph =
            with_gpu_details(machine_with(4, 0x10DE), find_nvlinks(first_ids(4), fake_nvml_path()));
        CHECK(check(graph, "drivers"));
        CHECK_EQ(graph.of_kind(VertexKind::nvswitch).size(), 1U);
        for (int gpu = 0; gpu < 4; gpu++)
            CHECK(between(graph, gpu, -1) == std::vector<Found>({{LinkClass::nvswitch, 450, 18}}));
    }
}

void a_link_whose_end_nobody_knows_is_none() {
    for (const int tells_types : {1, 0}) {
        fake_nvml_begin(tells_types, 1);
        for (int gpu = 0; gpu < 2; gpu++) {
            fake_nvml_add_gpu(bus_ids[gpu], 9, 0);
            fake_nvml_add_link(gpu, 0, "0000:00:00.0", 0, 1);
        }
        CHECK(find_nvlinks(first_ids(2), fake_nvml_path()).links.empty());
    }
}

void without_nvml_nothing_is_known() {
    fake_nvml_begin(1, 0);
    fake_nvml_add_gpu(bus_ids[0], 9, 0);
    CHECK(find_nvlinks(first_ids(2), fake_nvml_path()).arch.empty());
    CHECK(find_nvlinks(first_ids(2), "libnowhere.so.1").arch.empty());
    fake_nvml_begin(1, 1); // NVML knows other GPUs only
    CHECK(find_nvlinks(first_ids(2), fake_nvml_path()).arch.empty());
    CHECK_EQ(fake_nvml_users(), 0);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_less_counts_where_ends_differ),
        QTEST(kfd_names_rates_and_versions),
        QTEST(damaged_files_of_kfd_say_nothing),
        QTEST(nvml_counts_the_links_between_gpus),
        QTEST(nvml_finds_switches),
        QTEST(a_link_whose_end_nobody_knows_is_none),
        QTEST(without_nvml_nothing_is_known),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
