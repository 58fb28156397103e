// Tests topology/formats/synthetic: the graphs that short texts describe, and the texts that are
// refused.
#include "tests/kit/qtest.hpp"

#include "topology/formats/read_topology.hpp"

#include <chrono>
#include <random>

using namespace qccl;

namespace {

Graph build(const char *text) {
    Result<Graph> graph = parse_synthetic(text);
    CHECK_OK(graph);
    CHECK_OK(check(*graph, text));
    return std::move(*graph);
}

std::vector<Link> links_of_class(const Graph &graph, LinkClass link_class) {
    std::vector<Link> links;
    for (const Link &link : graph.links())
        if (link.link_class == link_class) links.push_back(link);
    return links;
}

void a_job_of_gpus() {
    const Graph graph = build("64 x node(8 gpu nvlink:450) net:50x8");
    CHECK(graph.vertex(0).kind == VertexKind::network);
    CHECK_EQ(graph.of_kind(VertexKind::machine).size(), 64U);
    CHECK_EQ(graph.of_kind(VertexKind::gpu).size(), 512U);
    CHECK_EQ(graph.of_kind(VertexKind::nic).size(), 512U);
    const auto mesh = links_of_class(graph, LinkClass::nvlink);
    CHECK_EQ(mesh.size(), 64U * 28);
    CHECK_EQ(mesh[0].bytes_per_ns, 450.0 / 7);
    const auto ports = links_of_class(graph, LinkClass::rdma);
    CHECK_EQ(ports.size(), 512U);
    CHECK_EQ(ports[0].bytes_per_ns, 50.0);
    const Vertex &last = graph.vertex(graph.of_kind(VertexKind::machine).back());
    CHECK(last.name == "node63" && last.number == 63 && last.parent == 0);
    CHECK(graph.vertex(graph.of_kind(VertexKind::nic)[0]).gpudirect);
}

void processors_are_dealt_out() {
    const Graph graph = build("4 x node(2 numa 15 core) net:tcp:0.125");
    const auto numas = graph.of_kind(VertexKind::numa);
    CHECK_EQ(numas.size(), 8U);
    CHECK_EQ(graph.vertex(numas[0]).cpus.size(), 7U);
    CHECK_EQ(graph.vertex(numas[1]).cpus.size(), 8U);
    CHECK(graph.vertex(numas[1]).cpus.has(14) && !graph.vertex(numas[1]).cpus.has(6));
    CHECK_EQ(links_of_class(graph, LinkClass::tcp).size(), 4U);
    CHECK(!graph.vertex(graph.of_kind(VertexKind::nic)[0]).gpudirect);
    const Graph packages = build("node(2 packages, 4 numa, interconnect:62.4, memory:100)");
    CHECK(packages.vertex(0).kind == VertexKind::machine);
    CHECK_EQ(packages.of_kind(VertexKind::numa).size(), 4U);
    const uint32_t third = packages.of_kind(VertexKind::numa)[2];
    CHECK_EQ(packages.vertex(packages.vertex(third).parent).number, 1U);
    CHECK_EQ(links_of_class(packages, LinkClass::cpu_interconnect)[0].bytes_per_ns, 62.4);
    CHECK_EQ(links_of_class(packages, LinkClass::shared_memory)[0].bytes_per_ns, 100.0);
}

void switches_pair_gpus_with_nics() {
    const Graph graph = build("node(2 package 8 pci 8 gpu nvswitch:450 8 nic:50 pcie:gen5 "
                              "arch:sm90)");
    const auto gpus = graph.of_kind(VertexKind::gpu), nics = graph.of_kind(VertexKind::nic);
    for (size_t i = 0; i < 8; i++) {
        const Vertex &gpu = graph.vertex(gpus[i]);
        CHECK(gpu.arch == "sm90" && gpu.parent == graph.vertex(nics[i]).parent);
        CHECK(graph.vertex(gpu.parent).kind == VertexKind::pci);
        CHECK_EQ(graph.vertex(graph.numa_of(gpus[i])).number, i / 4);
    }
    CHECK_EQ(graph.of_kind(VertexKind::nvswitch).size(), 1U);
    CHECK_EQ(links_of_class(graph, LinkClass::nvswitch).size(), 8U);
    const Link slot = links_of_class(graph, LinkClass::pcie)[0];
    CHECK(slot.width == 16 && std::abs(slot.bytes_per_ns - 63.015) < 0.001);
}

void racks_are_networks() {
    const Graph graph =
        build("2 x rack(3 x node(gpu nic:50x2)) + rack(1 node(2 gpu) net:25) net:rdma:400x4");
    const auto networks = graph.of_kind(VertexKind::network);
    CHECK_EQ(networks.size(), 4U);
    CHECK(graph.vertex(networks[3]).name == "rack2" && graph.vertex(networks[3]).parent == 0);
    const Link &up = graph.link(graph.links_of(networks[1])[0]);
    CHECK(up.bytes_per_ns == 1600 && up.width == 4 && up.link_class == LinkClass::rdma);
    CHECK_EQ(graph.of_kind(VertexKind::machine).size(), 7U);
    CHECK_EQ(graph.vertex(graph.of_kind(VertexKind::machine)[6]).parent, networks[3]);
}

void rates_have_units() {
    for (const char *text : {"node(nic:12.5)", "node(nic:100gbit)", "node(nic:100G)",
                             "node(nic:rdma:12.5GB/s)", "1 x node net:100gbitx1"})
        CHECK_EQ(links_of_class(build(text), LinkClass::rdma)[0].bytes_per_ns, 12.5);
    CHECK_EQ(links_of_class(build("node(nic:10gbit)"), LinkClass::tcp).size(), 1U);
    CHECK_EQ(links_of_class(build("node(nic:rdma:10gbit)"), LinkClass::rdma).size(), 1U);
    CHECK_EQ(links_of_class(build("node(nic:tcp:100gbit)"), LinkClass::tcp).size(), 1U);
}

void refuses(const std::string &text, const std::string &sentence) {
    const auto graph = parse_synthetic(text);
    CHECK(!graph);
    CHECK_EQ(std::string(graph.error().text), "the topology" + sentence);
}

void wrong_texts_are_refused() {
    refuses("", ", character 1, its end: expected part of a network: node, rack");
    refuses("2 x nodes(8 gpu)", ", character 5 (\"nodes(8 gpu)\"): \"nodes\" is no part of a "
                                "network; did you mean node?");
    refuses("node(8 gpu nvlnk:450)", ", character 12 (\"nvlnk:450)\"): \"nvlnk\" is no part of a "
                                     "node; did you mean nvlink?");
    refuses("node(8 disk)", ", character 8 (\"disk)\"): \"disk\" is no part of a node; possible "
                            "are package, numa, core, pci, gpu, nic, nvlink, nvswitch, xgmi, pcie, "
                            "interconnect, memory, arch");
    refuses("node(8 gpu", ", character 11, its end: the node's ( is not closed");
    refuses("node(0 gpu)", ", character 6 (\"0 gpu)\"): expected a number from 1 to 1048576");
    refuses("99999999999999999999 x node",
            ", character 1 (\"99999999999999999999 x n\"): expected a number from 1 to 1048576");
    for (const char *rate : {"", "0", "-5", "nan", "1e9", "5 0", "0gbit", "1e-5x", "50x0"})
        CHECK(!parse_synthetic("node(nic:" + std::string(rate) + ")"));
    refuses("node(nic:fast)", ", character 10 (\"fast)\"): expected a rate: GB/s such as 50, or "
                              "400gbit, 12.5GB/s");
    refuses("node(nic:0)",
            ", character 10 (\"0)\"): expected a rate above 0 and up to 1000000 GB/s");
    refuses("node(nvlink)", ", character 12 (\")\"): nvlink needs a rate, as in nvlink:50");
    refuses("node(nvlink:5)",
            ", character 5 (\"(nvlink:5)\"): nvlink and xgmi need at least two GPUs in the node");
    refuses("node(nvswitch:5)",
            ", character 5 (\"(nvswitch:5)\"): nvswitch and arch need GPUs in the node");
    refuses("node(8 gpu 4 gpu)", ", character 14 (\"gpu)\"): gpu stands twice");
    refuses("node(gpu:8)", ", character 6 (\"gpu:8)\"): gpu takes a number in front of it");
    refuses("node(2 memory:5)",
            ", character 6 (\"2 memory:5)\"): memory takes no number in front of it");
    refuses("node(2 nic:5x2)", ", character 8 (\"nic:5x2)\"): the number of NICs stands both in "
                               "front and behind");
    refuses("node(pcie:gen7)", ", character 11 (\"gen7)\"): expected gen1 to gen6, each with 16 "
                               "lanes, or a rate");
    refuses("node(2 package 3 numa)", ", character 5 (\"(2 package 3 numa)\"): the NUMA nodes do "
                                      "not divide evenly among the packages");
    refuses("2 x node(8 gpu)", ": nothing connects the nodes: say net:RATE behind them, as in "
                               "net:50x8 or net:tcp:1gbit, or nic:RATE in each");
    refuses("2 x rack(node net:1)",
            ": nothing connects the racks: say net:RATE behind them, as in net:400x4");
    refuses("node(nic:5) net:5",
            ": net: gives NICs to nodes that have nic: already; say one of the two");
    refuses("node net:5 net:6",
            ", character 12 (\"net:6\"): expected + and more nodes, net:RATE or the end");
    refuses("node network:5", ", character 6 (\"network:5\"): \"network\" is no word behind a "
                              "network; possible are net");
    refuses("rack(node net:1", ", character 16, its end: expected + and more of the rack, net:RATE "
                               "or )");
    refuses("1000 x node(2000 gpu nvlink:5) net:1",
            " has about 2e+06 parts and 2e+09 links; at most 1048576 and 4194304 are possible");
    refuses(std::string(5000, ' '), " has 5000 characters; at most 4096 are read");
    std::string deep;
    for (int i = 0; i < 400; i++) deep += "rack(";
    refuses(deep, ", character 41 (\"rack(rack(rack(rack(rack\"): racks nest deeper than 8 levels");
}

void damage_never_crashes() {
    const std::string text = "2 x rack(2 x node(2 package 4 numa 8 core 2 gpu nvlink:450 pcie:gen5 "
                             "nic:tcp:50x2) + node(nic:1gbit)) net:rdma:50x2";
    CHECK_OK(parse_synthetic(text));
    std::mt19937_64 random(1);
    for (size_t length = 0; length < text.size(); length++)
        CHECK(!parse_synthetic(text.substr(0, length)) || length > 0);
    for (int i = 0; i < 20000; i++) {
        std::string damaged = text;
        damaged[random() % text.size()] ^= static_cast<char>(1 << random() % 8);
        const auto graph = parse_synthetic(damaged);
        CHECK(graph ? check(*graph, "t").is_ok() : graph.error().text[0] != 0);
    }
}

// The largest job that the tools support. Only an algorithm of the wrong complexity exceeds the
// limit.
void large_jobs_are_quick() {
    const auto start = std::chrono::steady_clock::now();
    const Graph graph = build("32 x rack(32 x node(2 package 8 pci 8 gpu nvlink:450 8 nic:50)) "
                              "net:rdma:400x4");
    const auto taken = std::chrono::steady_clock::now() - start;
    CHECK_EQ(graph.of_kind(VertexKind::gpu).size(), 8192U);
    CHECK(taken < std::chrono::seconds(2));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_job_of_gpus),
        QTEST(processors_are_dealt_out),
        QTEST(switches_pair_gpus_with_nics),
        QTEST(racks_are_networks),
        QTEST(rates_have_units),
        QTEST(wrong_texts_are_refused),
        QTEST(damage_never_crashes),
        QTEST(large_jobs_are_quick),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
