// Tests parse_hwloc_xml() of topology/formats/topology_xml and graph_of() of
// topology/machine_graph: the graph of files that hwloc writes, and the refusal of damaged files.
#include "tests/kit/hwloc_files.hpp"
#include "tests/kit/qtest.hpp"

#include "topology/formats/read_topology.hpp"
#include "topology/machine_graph.hpp"

using namespace qccl;

namespace {

std::string replaced(std::string text, const std::string &from, const std::string &to) {
    const size_t at = text.find(from);
    CHECK(at != std::string::npos);
    return text.replace(at, from.size(), to);
}

// Returns the parts of the graph, one a line: "3 pci 0000:01:00.0 in 2".
std::string parts_of(const Graph &graph) {
    std::string text;
    for (uint32_t i = 0; i < graph.vertices().size(); i++)
        text +=
            std::to_string(i) + " " + describe(graph, i) + " in " +
            (graph.vertex(i).parent == no_vertex ? "-" : std::to_string(graph.vertex(i).parent)) +
            "\n";
    return text;
}

std::string links_of(const Graph &graph) {
    std::string text;
    for (const Link &link : graph.links()) {
        char rate[32];
        std::snprintf(rate, sizeof rate, " %.5g\n", link.bytes_per_ns);
        text += std::to_string(link.from) + "-" + std::to_string(link.to) + " " +
                std::string(name(link.link_class)) + rate;
    }
    return text;
}

void check_equal(const std::string &got, const std::string &expected) {
    if (got != expected) throw qtest::Failure{"got\n" + got + "instead of\n" + expected};
}

void bridges_that_lead_to_one_device_are_its_link() {
    const auto graph = parse_hwloc_xml(hwloc_file(), "m.xml");
    CHECK_OK(graph);
    check_equal(parts_of(*graph), "0 network 0 in -\n"
                                  "1 machine 0 (n1) in 0\n"
                                  "2 package 0 (Xeon) in 1\n"
                                  "3 numa 0 in 2\n"
                                  "4 package 1 (Xeon) in 1\n"
                                  "5 numa 1 in 4\n"
                                  "6 pci 0 (0000:01:00.0) in 3\n"
                                  "7 gpu 0 (0000:03:00.0) in 6\n"
                                  "8 nic 0 (0000:04:00.0) in 6\n"
                                  "9 nic 1 (0000:41:00.0) in 5\n");
    check_equal(links_of(*graph), "1-2 cpu_interconnect 62.4\n"
                                  "2-3 cpu_interconnect 0\n"
                                  "3-3 shared_memory 0\n"
                                  "1-4 cpu_interconnect 62.4\n"
                                  "4-5 cpu_interconnect 0\n"
                                  "5-5 shared_memory 0\n"
                                  "3-6 pcie 63.015\n"
                                  "6-7 pcie 31.5\n"
                                  "6-8 pcie 31.5\n"
                                  "5-9 pcie 7.8769\n" // the bridge's rate; the device has none
                                  "8-0 rdma 0\n"
                                  "9-0 tcp 0\n");
    CHECK(graph->vertex(7).name == "GH100");
    CHECK(graph->vertex(8).name == "mlx5_0" && graph->vertex(8).rdma);
    CHECK(graph->vertex(9).name == "eth0" && !graph->vertex(9).rdma);
    CHECK(graph->vertex(5).cpus == CpuSet::parse("c"));
}

void newer_files_are_read_alike() {
    const auto older = parse_hwloc_xml(hwloc_file(), "2.xml");
    const auto newer = parse_hwloc_xml(hwloc_file("3.0"), "3.xml");
    CHECK(older && newer && *older == *newer);
}

void a_bridge_that_several_nodes_share_lies_in_what_contains_them() {
    const auto cpus = [](const char *mask) { return *CpuSet::parse(mask); };
    const HwlocObject nic{
        .type = HwlocType::pci_device, .bus_id = "0000:01:00.0", .pci_class = 0x0200};
    const HwlocObject near{.type = HwlocType::host_bridge, .children = {nic}};
    const HwlocObject package{
        .type = HwlocType::package,
        .cpus = cpus("f"),
        .children = {{.type = HwlocType::other,
                      .cpus = cpus("3"),
                      .children = {{.type = HwlocType::numa, .cpus = cpus("3")}}},
                     {.type = HwlocType::other,
                      .cpus = cpus("c"),
                      .children = {{.type = HwlocType::numa, .number = 1, .cpus = cpus("c")}}}}};
    const auto parent_of_nic = [](const HwlocObject &root) {
        const Graph graph = graph_of(root);
        CHECK(check(graph, "tree"));
        return describe(graph, graph.vertex(graph.of_kind(VertexKind::nic).at(0)).parent);
    };
    HwlocObject root{.cpus = cpus("f"), .children = {package}};
    root.children[0].children.push_back(near);
    CHECK(parent_of_nic(root) == "package 0");
    root.children[0].children.pop_back();
    root.children[0].children[1].children.push_back(near);
    CHECK(parent_of_nic(root) == "numa 1");
    root.children[0].children[1].children.pop_back();
    root.children.push_back(near);
    CHECK(parent_of_nic(root) == "machine 0");
}

void a_machine_of_which_nothing_is_known_is_plain() {
    const Graph graph = plain_machine(*CpuSet::parse("f0"));
    CHECK(check(graph, "plain"));
    check_equal(parts_of(graph), "0 machine 0 in -\n1 package 0 in 0\n2 numa 0 in 1\n");
    CHECK(graph.vertex(2).cpus == CpuSet::parse("f0"));
}

void check_refused(const std::string &text, const std::string &sentence) {
    const auto graph = parse_hwloc_xml(text, "m.xml");
    if (graph) throw qtest::Failure{"accepted instead of: " + sentence};
    CHECK(graph.error().code == Code::invalid_argument);
    check_equal(graph.error().text, sentence);
}

void damaged_files_are_refused() {
    const std::string good = hwloc_file();
    check_refused("", "m.xml, line 1: this is no XML: No document element found");
    check_refused("<system/>",
                  "m.xml: no object of type Machine stands in an element `topology`; a "
                  "file of hwloc has both");
    check_refused(replaced(good, "version=\"2.0\"", "version=\"4.1\""),
                  "m.xml, line 3: topology: the version is \"4.1\"; files of hwloc 2 and 3 can be "
                  "read, and lstopo of hwloc 2 converts those of hwloc 1");
    check_refused(replaced(good, "cpuset=\"0x00000003\"", "cpuset=\"0xf...f\""),
                  "m.xml, line 5: object Package: cpuset is no mask of processors such as "
                  "0xff,0xffffffff");
    check_refused(replaced(good, "0000:03:00.0", "somewhere"),
                  "m.xml, line 5: object somewhere: pci_busid is \"somewhere\"; expected one such "
                  "as 0000:1b:00.0");
    check_refused(replaced(good, "0302 [10de:2330]", "GPU"),
                  "m.xml, line 5: object 0000:03:00.0: pci_type is \"GPU [10de:16c1] a1 00\"; "
                  "expected a class and a vendor such as \"0302 [10de:2330]\"");
    check_refused(replaced(good, "pci_link_speed=\"31.5\"", "pci_link_speed=\"-31.5\""),
                  "m.xml, line 5: object 0000:02:00.0: pci_link_speed is \"-31.5\"; expected a "
                  "number above 0");
    check_refused(replaced(good, "\"Package\" os_index=\"1\"", "\"Package\" os_index=\"one\""),
                  "m.xml, line 6: object Package: os_index is \"one\"; expected a number from 0 to "
                  "4294967295");
}

// Files that end early, at any byte, that nest too deeply, or that are too large.
void truncated_deep_and_huge_files_are_refused() {
    const std::string good = hwloc_file();
    for (size_t bytes = 0; bytes + 2 < good.size(); bytes += 7)
        CHECK(!parse_hwloc_xml(good.substr(0, bytes), "m.xml"));
    std::string deep = "<topology version=\"2.0\"><object type=\"Machine\">";
    for (int i = 0; i < 100000; i++) deep += "<object type=\"Group\">";
    for (int i = 0; i < 100000; i++) deep += "</object>";
    check_refused(deep + "</object></topology>", "m.xml: elements nest deeper than 64 levels");
    check_refused(std::string(most_hwloc_xml_bytes + 1, ' '),
                  "m.xml has 16777217 bytes; a topology of hwloc has at most 16777216");
}

// A damaged file may still be readable: the first part keeps the id, the second has none.
void a_bus_id_that_occurs_twice_stays_with_the_first() {
    const auto graph =
        parse_hwloc_xml(replaced(hwloc_file(), "0000:41:00.0", "0000:03:00.0"), "m.xml");
    CHECK_OK(graph);
    CHECK(graph->vertex(7).bus_id == "0000:03:00.0" && graph->vertex(9).bus_id.empty());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(bridges_that_lead_to_one_device_are_its_link),
        QTEST(newer_files_are_read_alike),
        QTEST(a_bridge_that_several_nodes_share_lies_in_what_contains_them),
        QTEST(a_machine_of_which_nothing_is_known_is_plain),
        QTEST(damaged_files_are_refused),
        QTEST(truncated_deep_and_huge_files_are_refused),
        QTEST(a_bus_id_that_occurs_twice_stays_with_the_first),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
