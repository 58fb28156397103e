// Tests parse_nccl_xml() of topology/formats/topology_xml and the rates of topology/machine_graph:
// the graph and rates of files that NCCL and RCCL write, their quirks, and the refusal of damaged
// files.
#include "tests/kit/qtest.hpp"

#include "topology/formats/read_topology.hpp"
#include "topology/machine_graph.hpp"

#include <cmath>
#include <tuple>

using namespace qccl;

namespace {

Graph read(const std::string &text) {
    Result<Graph> graph = parse_nccl_xml(text, "t.xml");
    CHECK_OK(graph);
    CHECK(check(*graph, "t.xml"));
    return std::move(*graph);
}

std::string in_cpu(const std::string &inside, const std::string &attributes = "numaid=\"0\"") {
    return "<system version=\"1\">\n<cpu " + attributes + ">\n" + inside + "</cpu>\n</system>\n";
}

std::string gpu(const std::string &bus, int dev, const std::string &links,
                const std::string &attributes = "sm=\"90\"") {
    return "<pci busid=\"" + bus +
           "\" class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\">\n<gpu dev=\"" +
           std::to_string(dev) + "\" " + attributes + " rank=\"0\" gdr=\"1\">" + links +
           "</gpu></pci>\n";
}

std::string nvlink(const std::string &target, int count, const char *tclass = "0x030200") {
    return "<nvlink target=\"" + target + "\" count=\"" + std::to_string(count) + "\" tclass=\"" +
           tclass + "\"/>";
}

std::string net(const std::string &attributes) { return "<nic><net " + attributes + "/></nic>"; }

// Returns the link of this class between two vertices.
const Link &between(const Graph &graph, uint32_t a, uint32_t b, LinkClass link_class) {
    for (const Link &link : graph.links())
        if (link.link_class == link_class && (link.from == a || link.to == a) && link.other(a) == b)
            return link;
    throw qtest::Failure{"no link " + std::string(name(link_class)) + " between " +
                         describe(graph, a) + " and " + describe(graph, b)};
}

bool is_local(double a, double b) { return std::abs(a - b) < 1e-9; }

void a_box_with_nvswitches() {
    const std::string switches =
        nvlink("0000:f5:00.0", 5, "0x068000") + nvlink("0000:f4:00.0", 13, "0x068000");
    const Graph graph =
        read(in_cpu("<pci busid=\"0000:10:00.0\" class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" "
                    "link_width=\"16\">" +
                        gpu("0000:1B:00.0", 4, switches) +
                        "<pci busid=\"0000:18:00.0\" class=\"0x020700\" link_speed=\"16 GT/s\" "
                        "link_width=\"8\">" +
                        net("name=\"mlx5_3\" dev=\"2\" speed=\"400000\" port=\"1\" gdr=\"1\"") +
                        "</pci></pci>" + gpu("0000:2a:00.0", 5, switches),
                    "numaid=\"1\" affinity=\"f0,00000001\" vendor=\"GenuineIntel\" familyid=\"6\" "
                    "modelid=\"143\""));
    CHECK(graph.vertex(0).kind == VertexKind::network);
    const auto machine = graph.of_kind(VertexKind::machine), numa = graph.of_kind(VertexKind::numa),
               gpus = graph.of_kind(VertexKind::gpu), nics = graph.of_kind(VertexKind::nic),
               pci = graph.of_kind(VertexKind::pci), nvs = graph.of_kind(VertexKind::nvswitch);
    CHECK(machine.size() == 1 && numa.size() == 1 && gpus.size() == 2 && nics.size() == 1 &&
          pci.size() == 1 && nvs.size() == 1);
    CHECK(graph.vertex(numa[0]).number == 1);
    CHECK(graph.vertex(numa[0]).cpus.print() == "f0,00000001");
    CHECK(is_local(between(graph, machine[0], numa[0], LinkClass::cpu_interconnect).bytes_per_ns,
                   128));
    CHECK(graph.vertex(gpus[0]).number == 4 && graph.vertex(gpus[0]).arch == "sm90");
    CHECK(graph.vertex(gpus[0]).bus_id == "0000:1b:00.0");
    const Link &slot = between(graph, pci[0], gpus[0], LinkClass::pcie);
    CHECK(is_local(slot.bytes_per_ns, 32.0 * 128 / 130 * 16 / 8) && slot.width == 16);
    CHECK(
        is_local(between(graph, pci[0], nics[0], LinkClass::pcie).bytes_per_ns, 16.0 * 128 / 130));
    for (const uint32_t each : gpus) {
        const Link &link = between(graph, each, nvs[0], LinkClass::nvswitch);
        CHECK(link.bytes_per_ns == 450 && link.width == 18);
    }
    const Vertex &nic = graph.vertex(nics[0]);
    CHECK(nic.name == "mlx5_3" && nic.number == 2 && nic.rdma && nic.gpudirect);
    CHECK(between(graph, nics[0], 0, LinkClass::rdma).bytes_per_ns == 50);
}

void gpus_have_links_to_one_another() {
    const Graph nvidia =
        read(in_cpu(gpu("0:1", 0, nvlink("0:2", 12) + nvlink("0:9", 4), "sm=\"80\"") +
                    gpu("0:2", 1, nvlink("0:1", 11), "sm=\"80\"")));
    CHECK(nvidia.vertex(0).kind == VertexKind::machine); // without a NIC there is no network
    const auto gpus = nvidia.of_kind(VertexKind::gpu);
    const Link &link = between(nvidia, gpus[0], gpus[1], LinkClass::nvlink);
    CHECK(link.width == 11 && link.bytes_per_ns == 275);
    for (const auto &[gcn, arch, rate] :
         {std::tuple("906", "gfx906", 46.0), std::tuple("910", "gfx90a", 50.0),
          std::tuple("gfx942:sramecc+", "gfx942", 64.0), std::tuple("999", "gfx999", 0.0)}) {
        const std::string attributes = std::string("sm=\"104\" gcn=\"") + gcn + "\"";
        const Graph amd = read(in_cpu(
            gpu("0:2", 0, "", attributes) +
            gpu("0:1", 1, "<xgmi target=\"0:2\" count=\"2\" tclass=\"0x038000\"/>", attributes)));
        const auto ends = amd.of_kind(VertexKind::gpu);
        CHECK(amd.vertex(ends[0]).arch == arch);
        CHECK(is_local(between(amd, ends[0], ends[1], LinkClass::xgmi).bytes_per_ns, 2 * rate));
    }
    const Graph grace = read(in_cpu(gpu("0:1", 0, "<c2c bw=\"44712\" count=\"5\"/>")));
    CHECK(is_local(between(grace, grace.of_kind(VertexKind::gpu)[0],
                           grace.of_kind(VertexKind::numa)[0], LinkClass::nvlink)
                       .bytes_per_ns,
                   223.56));
}

void ports_are_of_the_network() {
    const Graph graph =
        read(in_cpu("<pci busid=\"0:1\" link_speed=\"16 GT/s\" link_width=\"16\">"
                    "<nic><net name=\"a\" dev=\"0\" speed=\"100000\" port=\"1\"/>"
                    "<net name=\"b\" dev=\"1\" speed=\"200000000\" port=\"2\"/></nic></pci>" +
                    net("name=\"eth0\" dev=\"2\" speed=\"1000\" port=\"0\"") +
                    net("name=\"eth0\" dev=\"2\" speed=\"1000\" port=\"0\"")));
    const auto nics = graph.of_kind(VertexKind::nic), pci = graph.of_kind(VertexKind::pci);
    CHECK(nics.size() == 3 && pci.size() == 1);
    // The two ports share the slot of their card.
    CHECK(graph.vertex(nics[0]).parent == pci[0] && graph.vertex(nics[1]).parent == pci[0]);
    CHECK(graph.vertex(pci[0]).bus_id == "0:1" && graph.vertex(nics[0]).bus_id.empty());
    CHECK(between(graph, nics[0], 0, LinkClass::rdma).bytes_per_ns == 12.5);
    CHECK(between(graph, nics[1], 0, LinkClass::rdma).bytes_per_ns == 25);
    CHECK(graph.vertex(graph.vertex(nics[2]).parent).kind == VertexKind::machine);
    CHECK(between(graph, nics[2], 0, LinkClass::tcp).bytes_per_ns == 0.125);
}

void bus_ids_that_repeat() {
    const std::string bridge = "<pci busid=\"0:c5\" class=\"0x060400\" link_speed=\"8 GT/s\" "
                               "link_width=\"16\">";
    const Graph graph = read(
        in_cpu(bridge + gpu("0:1", 0, "") + "</pci>" + bridge + gpu("0:c5", 1, "") + "</pci>"));
    for (const uint32_t pci : graph.of_kind(VertexKind::pci))
        CHECK(graph.vertex(pci).bus_id.empty());
    CHECK(graph.vertex(graph.of_kind(VertexKind::gpu)[1]).bus_id == "0:c5");
}

void several_machines() {
    const auto host = [](const char *hash, const char *name) {
        return std::string("<cpu numaid=\"0\" host_hash=\"") + hash + "\">" + gpu("0:1", 0, "") +
               "<pci busid=\"0:2\">" + net(std::string("name=\"") + name + "\" port=\"1\"") +
               "</pci></cpu>";
    };
    for (const std::string &text :
         {"<system>" + host("0x1", "a") + host("0x2", "b") + "</system>",
          "<system>" + host("", "a") + "</system><system>" + host("", "b") + "</system>"}) {
        const Graph graph = read(text);
        CHECK(graph.of_kind(VertexKind::machine).size() == 2);
        const auto gpus = graph.of_kind(VertexKind::gpu);
        CHECK(gpus.size() == 2 && graph.machine_of(gpus[0]) != graph.machine_of(gpus[1]));
    }
}

// The files that cloud providers give to NCCL in virtual machines have no elements for GPUs and
// ports, because NCCL finds these itself.
void devices_without_elements() {
    const Graph graph = read(
        in_cpu("<pci busid=\"ffff:ff:01.0\" class=\"0x060400\" link_speed=\"16 GT/s\" "
               "link_width=\"16\">"
               "<pci busid=\"0001:00:00.0\" class=\"0x030200\" link_speed=\"\" link_width=\"0\"/>"
               "<pci busid=\"0101:00:00.0\" class=\"0x020700\" link_width=\"255\"/>"
               "<pci busid=\"0102:00:00.0\" class=\"0x010802\"/></pci>",
               "numaid=\"-1\""));
    const auto gpus = graph.of_kind(VertexKind::gpu), nics = graph.of_kind(VertexKind::nic);
    CHECK(gpus.size() == 1 && nics.size() == 1 && graph.vertices().size() == 6);
    CHECK(graph.vertex(gpus[0]).arch.empty() && graph.vertex(nics[0]).rdma);
    for (const uint32_t device : {gpus[0], nics[0]})
        CHECK(graph.link(graph.links_of(device)[0]).bytes_per_ns == 0);
}

void refuses(const std::string &text, const std::string &sentence) {
    const auto graph = parse_nccl_xml(text, "t.xml");
    CHECK(!graph);
    CHECK(graph.error().code == Code::invalid_argument);
    CHECK_EQ(std::string(graph.error().text), "t.xml" + sentence);
}

void damaged_files_are_refused() {
    refuses("", ", line 1: this is no XML: No document element found");
    refuses("<system>\n<cpu>\n</system>", ", line 3: this is no XML: Start-end tags mismatch");
    refuses("<topology/>", ": no element `cpu` stands in an element `system`; a topology of NCCL "
                           "or RCCL has both");
    refuses(in_cpu("<pci/>\n"), ", line 3: pci: busid is missing");
    refuses(in_cpu("", "numaid=\"x\""),
            ", line 2: cpu x: numaid is \"x\"; expected a number from 0 to 1048576");
    refuses(in_cpu("", "affinity=\"ff,,\""),
            ", line 2: cpu: affinity is no mask of processors such as ff,ffffffff");
    refuses(in_cpu("<pci busid=\"0:1\" link_speed=\"-16 GT/s\"/>"),
            ", line 3: pci 0:1: link_speed is \"-16 GT/s\"; expected a number above 0 in GT/s");
    refuses(in_cpu("<pci busid=\"0:1\" link_speed=\"8 GB/s\"/>"),
            ", line 3: pci 0:1: link_speed is \"8 GB/s\"; expected a number above 0 in GT/s");
    refuses(in_cpu("<pci busid=\"0:1\" link_width=\"-1\"/>"),
            ", line 3: pci 0:1: link_width is \"-1\"; expected a number from 0 to 255");
    for (const char *speed : {"0", "-100", "nan", "inf", "1e400", "many"})
        refuses(in_cpu(net(std::string("name=\"e\" speed=\"") + speed + "\"")),
                ", line 3: net e: speed is \"" + std::string(speed) +
                    "\"; expected a number above 0");
    refuses(in_cpu(gpu("0:1", 0, "<nvlink target=\"0:2\" count=\"0\"/>")),
            ", line 4: nvlink 0:2: count is \"0\"; expected a number from 1 to 1024");
    refuses(in_cpu(gpu("0:1", 0, "<xgmi target=\"0:2\"/>")),
            ", line 4: xgmi 0:2: count is missing");
    refuses(in_cpu(gpu("0:1", 0, "") + gpu("0:1", 1, "")),
            ", line 5: pci 0:1: another GPU has this busid");
    refuses("<system><cpu host_hash=\"1\"/><cpu host_hash=\"2\"/></system>",
            ": not all of its parts are connected by links");
}

void hostile_files_are_refused() {
    std::string deep = "<system><cpu>";
    for (int i = 0; i < 1000000; i++) deep += "<pci>";
    const auto unclosed = parse_nccl_xml(deep, "t.xml");
    CHECK(!unclosed);
    for (int i = 0; i < 1000000; i++) deep += "</pci>";
    refuses(deep + "</cpu></system>", ": elements nest deeper than 64 levels");
    refuses(std::string(most_nccl_xml_bytes + 1, ' '),
            " has 16777217 bytes; a topology of NCCL or RCCL has at most 16777216");
    // Entities that the document defines are not expanded.
    const Graph graph = read("<!DOCTYPE a [<!ENTITY b \"cccc\"><!ENTITY d \"&b;&b;\">]>" +
                             in_cpu(net("name=\"&d;\" port=\"0\"")));
    CHECK(graph.vertex(graph.of_kind(VertexKind::nic)[0]).name == "&d;");
}

void unknown_elements_are_passed_over() {
    const Graph graph = read(in_cpu("<gin a=\"1\"><pci busid=\"0:1\"/></gin>text" +
                                    gpu("0:1", 0, "<new count=\"-1\"/>")));
    CHECK(graph.of_kind(VertexKind::gpu).size() == 1);
}

void data_sheets_have_rates() {
    CHECK(is_local(pcie_rate(2.5, 4), 1) && is_local(pcie_rate(5, 16), 8));
    CHECK(is_local(pcie_rate(64, 16), 118));
    CHECK(nvlink_rate("sm70") == 25 && nvlink_rate("sm60") == 20 && nvlink_rate("sm100") == 50);
    for (const char *arch : {"", "sm", "sm52", "smx", "gfx90a", "sm90x"})
        CHECK(nvlink_rate(arch) == 0);
    CHECK(cpu_interconnect_rate("AuthenticAMD", 0x17, 0x31) == 128);
    CHECK(is_local(cpu_interconnect_rate("GenuineIntel", 6, 85), 62.4));
    CHECK(cpu_interconnect_rate("GenuineIntel", 6, 1) == 0);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_box_with_nvswitches),
        QTEST(gpus_have_links_to_one_another),
        QTEST(ports_are_of_the_network),
        QTEST(bus_ids_that_repeat),
        QTEST(several_machines),
        QTEST(devices_without_elements),
        QTEST(damaged_files_are_refused),
        QTEST(hostile_files_are_refused),
        QTEST(unknown_elements_are_passed_over),
        QTEST(data_sheets_have_rates),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
