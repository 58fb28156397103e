// Tests Graph and CpuSet of topology/graph: the contents of a graph, and the graphs and masks that
// are refused.
#include "tests/kit/qtest.hpp"

#include "topology/graph.hpp"

#include <limits>

using namespace qccl;

namespace {

// A machine with two packages of one NUMA node each, and a GPU below a PCI switch of each NUMA
// node.
Graph two_packages() {
    Graph graph;
    const uint32_t machine = graph.add({.kind = VertexKind::machine, .name = "m"});
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t package =
            graph.add({.kind = VertexKind::package, .parent = machine, .number = i});
        const uint32_t numa = graph.add({.kind = VertexKind::numa, .parent = package, .number = i});
        const uint32_t pci = graph.add({.kind = VertexKind::pci, .parent = numa});
        const uint32_t gpu = graph.add({.kind = VertexKind::gpu,
                                        .parent = pci,
                                        .bus_id = "0000:0" + std::to_string(i) + ":00.0",
                                        .number = i});
        graph.connect({machine, package, LinkClass::cpu_interconnect});
        graph.connect({package, numa, LinkClass::cpu_interconnect});
        graph.connect({numa, numa, LinkClass::shared_memory});
        graph.connect({numa, pci, LinkClass::pcie, 31.5, 0, 16});
        graph.connect({pci, gpu, LinkClass::pcie, 31.5, 0, 16});
    }
    return graph;
}

void parts_know_where_they_lie() {
    const Graph graph = two_packages();
    CHECK(check(graph, "test"));
    CHECK(graph.of_kind(VertexKind::gpu) == std::vector<uint32_t>({4, 8}));
    CHECK(graph.machine_of(8) == 0);
    CHECK(graph.numa_of(8) == 6);
    CHECK(graph.numa_of(1) == no_vertex);
    CHECK(graph.children(0).size() == 2);
    CHECK(graph.links_of(2).size() == 3); // to the package, to itself, to the switch
    CHECK(describe(graph, 4) == "gpu 0 (0000:00:00.0)");
}

void check_refused(const Graph &graph, const char *sentence) {
    const Done done = check(graph, "a file");
    CHECK(!done);
    CHECK(std::string(done.error().text) == std::string("a file: ") + sentence);
}

void damaged_graphs_are_refused() {
    check_refused({}, "there is no machine in it");
    Graph apart = two_packages();
    apart.add({.kind = VertexKind::nic, .parent = 0, .name = "eth0"});
    check_refused(apart, "not all of its parts are connected by links");
    Graph twice = two_packages();
    twice.connect({twice.add({.kind = VertexKind::gpu, .parent = 3, .bus_id = "0000:01:00.0"}), 3});
    check_refused(twice, "two parts of one machine have the bus id 0000:01:00.0");
    Graph later;
    later.add({.kind = VertexKind::machine, .parent = 1});
    check_refused(later, "machine 0 lies in a part that stands after it");
    Graph network;
    network.add({.kind = VertexKind::network});
    check_refused(network, "there is no machine in it");
    Graph outside = two_packages();
    outside.connect({outside.add({.kind = VertexKind::gpu, .parent = no_vertex}), 1});
    check_refused(outside, "gpu 0 lies in no machine");
    Graph inside = two_packages();
    inside.connect({inside.add({.kind = VertexKind::nic, .parent = 4, .name = "x"}), 4});
    check_refused(inside, "nic 0 (x) cannot lie in gpu 0 (0000:00:00.0)");
    Graph self = two_packages();
    self.connect({1, 1, LinkClass::shared_memory});
    check_refused(self, "package 0 has a link to itself");
    for (const double rate : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity()}) {
        Graph wrong = two_packages();
        wrong.connect({1, 5, LinkClass::cpu_interconnect, rate});
        check_refused(wrong, "the link between package 0 and package 1 has a rate or latency that "
                             "is negative or no number");
    }
}

void processors_are_sets() {
    CpuSet set;
    CHECK(set.is_empty() && set.print() == "0");
    for (const uint32_t cpu : {0U, 31U, 64U}) set.add(cpu);
    set.add(CpuSet::most_cpus);
    CHECK(set.size() == 3 && set.has(31) && !set.has(32) && !set.has(CpuSet::most_cpus));
    CHECK(set.print() == "1,00000000,80000001");
    CHECK(CpuSet::parse("00000000,0x1,00000000,80000001") == set);
    CHECK(CpuSet::parse("0x1,,0x80000001") == set);
    CpuSet less;
    less.add(64);
    CHECK(set.contains(less) && !less.contains(set) && less.contains(CpuSet()));
}

void damaged_masks_are_refused() {
    for (const char *mask : {"", ",", "1,", "g", "123456789", "-1", "1 ", "0x", ",1", "1,,"})
        CHECK(!CpuSet::parse(mask));
    std::string huge = "1";
    for (uint32_t i = 0; i < CpuSet::most_cpus / 32 - 1; i++) huge += ",00000000";
    CHECK(CpuSet::parse(huge));
    CHECK(!CpuSet::parse(huge + ",00000000"));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(parts_know_where_they_lie),
        QTEST(damaged_graphs_are_refused),
        QTEST(processors_are_sets),
        QTEST(damaged_masks_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
