// Tests topology/formats/topology_report and report_parts: the topology as people and programs see
// it.
#include "tests/kit/qtest.hpp"

#include "topology/formats/read_topology.hpp"
#include "topology/formats/topology_report.hpp"

#include <nlohmann/json.hpp>

using namespace qccl;

namespace {

Graph build(const char *text) {
    Result<Graph> graph = parse_synthetic(text);
    CHECK_OK(graph);
    return std::move(*graph);
}

void a_tree_of_a_machine() {
    CHECK_EQ(print_tree(build("node(2 numa 4 core interconnect:62.4 memory:100 4 gpu nvlink:450 "
                              "arch:sm90 2 nic:rdma:50 pcie:gen5)")),
             "network\n"
             "  node0\n"
             "    NUMA 0, 2 processors [cpu_interconnect 62.4 GB/s]; memory 100 GB/s\n"
             "      GPU 0 sm90 [pcie 63 GB/s x16]; nvlink 150 GB/s to GPU 1-3\n"
             "      GPU 1 sm90 [pcie 63 GB/s x16]; nvlink 150 GB/s to GPU 0, GPU 2-3\n"
             "      NIC 0, GPUDirect RDMA [pcie 63 GB/s x16]; rdma 50 GB/s to network\n"
             "    NUMA 1, 2 processors [cpu_interconnect 62.4 GB/s]; memory 100 GB/s\n"
             "      GPU 2 sm90 [pcie 63 GB/s x16]; nvlink 150 GB/s to GPU 0-1, GPU 3\n"
             "      GPU 3 sm90 [pcie 63 GB/s x16]; nvlink 150 GB/s to GPU 0-2\n"
             "      NIC 1, GPUDirect RDMA [pcie 63 GB/s x16]; rdma 50 GB/s to network\n"
             "Rates are each way, of several lanes or links (x) together; where none stands it is "
             "unknown.\n");
}

void a_tree_folds_what_is_alike() {
    CHECK_EQ(
        print_tree(build("2 x rack(32 x node net:1gbit) + 1 x rack(2 x node(2 numa) net:1gbit) "
                         "net:rdma:5x4")),
        "network\n"
        "  rack0 and others alike, 2 together [rdma 20 GB/s x4]\n"
        "    node0 and others alike, 32 together\n"
        "      NUMA 0 [cpu_interconnect]\n"
        "        NIC 0 [pcie]; tcp 0.125 GB/s to rack0\n"
        "  rack2 [rdma 20 GB/s x4]\n"
        "    node64 and others alike, 2 together\n"
        "      NUMA 0 [cpu_interconnect]\n"
        "        NIC 0 [pcie]; tcp 0.125 GB/s to rack2\n"
        "      NUMA 1 [cpu_interconnect]\n"
        "Rates are each way, of several lanes or links (x) together; where none stands it is "
        "unknown.\n");
}

// One different link, part or flag makes two machines differ; names, numbers and bus ids do not.
void likeness_looks_at_parts_and_links() {
    const auto machines_with = [](auto change) {
        Graph graph;
        graph.add({.kind = VertexKind::network});
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t machine =
                graph.add({.kind = VertexKind::machine, .parent = 0, .number = i});
            Vertex gpu{.kind = VertexKind::gpu, .parent = machine, .bus_id = std::to_string(i)};
            Link link{machine, machine + 1, LinkClass::pcie, 16};
            if (i == 1) change(gpu, link);
            graph.add(gpu);
            graph.connect(link);
        }
        return alike_runs(graph, Likeness(graph), 0).size();
    };
    CHECK_EQ(machines_with([](Vertex &, Link &) {}), 1U);
    CHECK_EQ(machines_with([](Vertex &gpu, Link &) { gpu.arch = "sm90"; }), 2U);
    CHECK_EQ(machines_with([](Vertex &gpu, Link &) { gpu.kind = VertexKind::nic; }), 2U);
    CHECK_EQ(machines_with([](Vertex &, Link &link) { link.bytes_per_ns = 17; }), 2U);
    CHECK_EQ(machines_with([](Vertex &, Link &link) { link.to = 0; }), 2U);
}

void a_matrix_of_paths() {
    CHECK_EQ(print_matrix(build("3 x node(2 gpu nvswitch:450 pcie:32 nic:rdma:50)")),
             "node0 and others alike, 3 together\n"
             "        GPU 0     GPU 1     NIC 0   NUMA 0\n"
             "GPU 0   X         NVS1 450  PCI 32  PCI 32\n"
             "GPU 1   NVS1 450  X         PCI 32  PCI 32\n"
             "NIC 0   PCI 32    PCI 32    X       PCI 32\n"
             "NUMA 0  PCI 32    PCI 32    PCI 32  X\n"
             "\n"
             "GPU 0 of node0 to GPU 0 of node2: GDR 32\n"
             "\n"
             "X     itself\n"
             "NVS#  through an NVSwitch, with # links\n"
             "PCI   PCIe, through switches or a root complex\n"
             "GDR   RDMA that reaches the GPU's memory by itself\n"
             "Behind the class stands the rate of the narrowest link in GB/s each way, unless one "
             "of them is unknown.\n");
    // A link without a known rate is shown without one.
    CHECK(print_matrix(build("node(2 numa)")).find("CPU\n") != std::string::npos);
}

void json_has_it_all() {
    Graph graph = build("2 x node(2 gpu xgmi:64 nic:50)");
    graph.add({.kind = VertexKind::nvswitch, .parent = 1, .name = "a\xff"});
    const auto places = rank_places(graph, 0);
    CHECK_OK(places);
    const auto json =
        nlohmann::json::parse(print_graph_json(graph, *places, order_ranks(graph, *places)));
    CHECK(json["version"] == 1 && json["connected"] == false);
    CHECK_EQ(json["nodes"].size(), graph.vertices().size());
    CHECK_EQ(json["links"].size(), graph.links().size());
    CHECK(json["nodes"].back()["name"] == "a\xef\xbf\xbd");
    CHECK(json["nodes"][1]["name"] == "node0" && json["nodes"][0]["parent"].is_null());
    CHECK_EQ(json["ranks"].size(), 4U);
    CHECK(json["trees"][0]["parents"].size() == 4 && json["trees"][0]["parents"][0] == 0);
    CHECK(json["rings"][0]["ranks"].size() == 4 && json["rings"][0]["is_rate_known"] == true);
    bool has_unknown = false;
    for (const auto &link : json["links"]) {
        has_unknown = has_unknown || link["gb_per_s"].is_null();
        CHECK(link["class"] != "xgmi" || link["gb_per_s"] == 64);
    }
    CHECK(has_unknown);
}

void names_are_shown_safely() {
    CHECK_EQ(printable("a\x1b[2J\n\x7f"), "a?[2J??");
    CHECK_EQ(printable("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
             "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80");
    for (const char *wrong : {"\xff", "\xc3", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80",
                              "\xf4\x90\x80\x80", "\xc2\x9b", "\x80"})
        CHECK(printable(wrong).find_first_not_of('?') == std::string::npos);
    for (const auto &[rate, text] :
         {std::pair(0.0, "?"), std::pair(0.125, "0.125"), std::pair(62.4, "62.4"),
          std::pair(450.0, "450"), std::pair(1600.0, "1600"), std::pair(999.7, "1000")})
        CHECK_EQ(rate_number(rate), text);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_tree_of_a_machine),
        QTEST(a_tree_folds_what_is_alike),
        QTEST(likeness_looks_at_parts_and_links),
        QTEST(a_matrix_of_paths),
        QTEST(json_has_it_all),
        QTEST(names_are_shown_safely),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
