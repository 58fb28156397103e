// Tests topology/job_graph: the graph of a job made of several machines, and the place of a rank on
// its machine.
#include "tests/kit/qtest.hpp"

#include "topology/job_graph.hpp"
#include "topology/machine_graph.hpp"
#include "topology/rank_order.hpp"
#include "topology/sources/machine_sources.hpp"

using namespace qccl;

namespace {

CpuSet cpus(const char *mask) { return *CpuSet::parse(mask); }

// A machine with two packages of one NUMA node each. The first package has two NICs.
Graph two_nodes() {
    HwlocObject root{.cpus = cpus("f")};
    for (uint32_t i = 0; i < 2; i++) {
        const CpuSet local = cpus(i == 0 ? "3" : "c");
        root.children.push_back(
            {.type = HwlocType::package,
             .number = i,
             .cpus = local,
             .children = {{.type = HwlocType::numa, .number = i, .cpus = local}}});
    }
    for (const char *bus_id : {"0000:03:00.0", "0000:04:00.0"})
        root.children[0].children.push_back(
            {.type = HwlocType::pci_device, .bus_id = bus_id, .pci_class = 0x0200});
    return graph_of(root);
}

Graph connected(const Graph &machine, const std::string &bus_id) {
    return connect_to_network(
        machine, {{.name = "eth0", .bus_id = bus_id, .is_up = true, .bytes_per_ns = 1.25}},
        {{"eth0"}});
}

std::string vertices_of(const Graph &graph, VertexKind kind) {
    std::string text;
    for (const uint32_t vertex : graph.of_kind(kind))
        text += describe(graph, vertex) + " in " +
                (graph.vertex(vertex).parent == no_vertex
                     ? "-"
                     : describe(graph, graph.vertex(vertex).parent)) +
                ";";
    return text;
}

void one_machine_is_its_own_job() {
    const Graph machine = connected(two_nodes(), "0000:03:00.0");
    const JobGraph job(std::vector<JobMachine>{{&machine, "a", "r0"}});
    CHECK(check(job.graph(), "job"));
    CHECK(vertices_of(job.graph(), VertexKind::machine) == "machine 0 (a) in network 0;");
    CHECK(job.graph().vertices().size() == machine.vertices().size());
    CHECK(job.number_of(0, 3) == 3);
}

void machines_share_a_network() {
    const Graph a = connected(two_nodes(), "0000:04:00.0"), b = two_nodes();
    const JobGraph job(std::vector<JobMachine>{{&a, "a", ""}, {&b, "b", ""}, {&a, "c", ""}});
    const Graph &graph = job.graph();
    CHECK(check(graph, "job"));
    CHECK(vertices_of(graph, VertexKind::network) == "network 0 in -;");
    CHECK(vertices_of(graph, VertexKind::machine) ==
          "machine 0 (a) in network 0;machine 1 (b) in network 0;machine 2 (c) in network 0;");
    // A NIC without a connection is left out if the machine has a connected one.
    CHECK(vertices_of(graph, VertexKind::nic) ==
          "nic 1 (0000:04:00.0) in numa 0;nic 0 (0000:03:00.0) in numa 0;"
          "nic 1 (0000:04:00.0) in numa 0;nic 1 (0000:04:00.0) in numa 0;");
    std::string links;
    for (const Link &link : graph.links())
        if (is_between_machines(link.link_class)) links += describe(graph, link.from) + ";";
    CHECK(links == "nic 1 (0000:04:00.0);machine 1 (b);nic 1 (0000:04:00.0);");
    const uint32_t numa = job.number_of(2, a.of_kind(VertexKind::numa)[1]);
    CHECK(graph.vertex(numa).number == 1);
    CHECK(graph.vertex(graph.machine_of(numa)).name == "c");
    const uint32_t dropped = a.of_kind(VertexKind::nic)[0];
    CHECK(describe(graph, job.number_of(2, dropped)) == "machine 2 (c)");
}

void racks_are_networks_between() {
    const Graph machine = connected(two_nodes(), "0000:03:00.0");
    const JobGraph job(std::vector<JobMachine>{
        {&machine, "a", "r0"}, {&machine, "b", "r1"}, {&machine, "c", "r0"}});
    CHECK(check(job.graph(), "job"));
    CHECK(vertices_of(job.graph(), VertexKind::network) ==
          "network 0 in -;network 0 (r0) in network 0;network 1 (r1) in network 0;");
    CHECK(vertices_of(job.graph(), VertexKind::machine) ==
          "machine 0 (a) in network 0 (r0);machine 1 (b) in network 1 (r1);machine 2 (c) in "
          "network 0 (r0);");
    std::vector<uint32_t> places;
    for (size_t i = 0; i < 3; i++)
        places.push_back(job.number_of(i, machine.of_kind(VertexKind::numa)[0]));
    CHECK(order_ranks(job.graph(), places).rings[0].ranks == std::vector<uint32_t>({0, 2, 1}));
}

void a_rank_is_where_its_processors_are() {
    const Graph graph = two_nodes();
    const auto place = [&](const char *mask) {
        return describe(graph, place_of(graph, cpus(mask), ""));
    };
    CHECK(place("1") == "numa 0" && place("3") == "numa 0" && place("8") == "numa 1");
    CHECK(place("6") == "machine 0" && place("0") == "machine 0" && place("10") == "machine 0");
    CHECK(numa_number(graph, place_of(graph, cpus("4"), "")) == 1U);
    CHECK(!numa_number(graph, place_of(graph, cpus("6"), "")));
    const Graph plain = plain_machine(cpus("f"));
    CHECK(describe(plain, place_of(plain, cpus("1"), "")) == "numa 0");
    CHECK(!numa_number(plain, place_of(plain, cpus("1"), ""))); // one node only
}

void a_rank_on_a_gpu_is_there() {
    HwlocObject root{.cpus = cpus("f")};
    root.children.push_back({.type = HwlocType::pci_device,
                             .bus_id = "0000:03:00.0",
                             .pci_class = 0x0302,
                             .pci_vendor = 0x10de});
    const Graph graph = graph_of(root);
    CHECK(describe(graph, place_of(graph, cpus("1"), "0000:03:00.0")) == "gpu 0 (0000:03:00.0)");
    CHECK(describe(graph, place_of(graph, cpus("1"), "0000:04:00.0")) == "numa 0");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(one_machine_is_its_own_job), QTEST(machines_share_a_network),
        QTEST(racks_are_networks_between), QTEST(a_rank_is_where_its_processors_are),
        QTEST(a_rank_on_a_gpu_is_there),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
