// Tests topology/graph_text: a printed graph is read back the same, and damaged texts are refused.
#include "tests/kit/qtest.hpp"

#include "topology/graph.hpp"

#include <cmath>
#include <random>

using namespace qccl;

namespace {

using Random = std::mt19937_64;

uint32_t below(Random &random, uint32_t bound) { return static_cast<uint32_t>(random() % bound); }

std::string any_text(Random &random) {
    std::string text;
    for (uint32_t left = below(random, 8); left > 0; left--)
        text +=
            static_cast<char>(below(random, 4) == 0 ? below(random, 256) : 'a' + below(random, 26));
    return text;
}

// Returns, among others, the least value, the greatest and values with 17 digits.
double any_measure(Random &random) {
    switch (below(random, 4)) {
    case 0: return 0;
    case 1: return static_cast<double>(below(random, 1000)) / 8;
    case 2: return static_cast<double>(random()) / 3e10;
    default: return std::ldexp(static_cast<double>(random() >> 11), -1074 + 40);
    }
}

uint32_t any_number(Random &random) {
    return below(random, 4) == 0 ? UINT32_MAX : below(random, 9);
}

void connect_any(Graph &graph, Random &random, uint32_t from, uint32_t to) {
    graph.connect({from, to, static_cast<LinkClass>(below(random, link_classes)),
                   any_measure(random), any_measure(random), 1 + below(random, 20)});
}

// Returns a sound graph with random content.
Graph any_graph(Random &random) {
    static constexpr VertexKind inner[] = {VertexKind::package,  VertexKind::numa, VertexKind::pci,
                                           VertexKind::nvswitch, VertexKind::gpu,  VertexKind::nic};
    Graph graph;
    graph.add({.kind = VertexKind::network, .name = any_text(random)});
    const uint32_t parts = 2 + below(random, 30);
    for (uint32_t i = 1; i < parts; i++) {
        const bool is_machine = i == 1 || below(random, 6) == 0;
        Vertex vertex{.kind = is_machine ? VertexKind::machine : inner[below(random, 6)],
                      .name = any_text(random),
                      .bus_id = below(random, 2) == 0 ? std::to_string(i) + any_text(random) : "",
                      .number = any_number(random),
                      .arch = any_text(random),
                      .rdma = below(random, 2) == 0,
                      .gpudirect = below(random, 2) == 0};
        for (uint32_t left = below(random, 4); left > 0; left--)
            vertex.cpus.add(below(random, 300));
        const auto may_contain = [&](VertexKind outer) {
            return is_machine ? outer == VertexKind::network
                              : outer >= VertexKind::machine && outer <= VertexKind::pci;
        };
        do vertex.parent = below(random, i);
        while (!may_contain(graph.vertex(vertex.parent).kind));
        const uint32_t parent = vertex.parent;
        connect_any(graph, random, parent, graph.add(std::move(vertex)));
    }
    for (uint32_t left = below(random, 20); left > 0; left--) {
        const uint32_t from = below(random, parts), to = below(random, parts);
        if (from != to || graph.vertex(from).kind == VertexKind::numa)
            connect_any(graph, random, from, to);
    }
    return graph;
}

void what_is_printed_is_read_back() {
    Random random(1);
    for (int i = 0; i < 2000; i++) {
        const Graph graph = any_graph(random);
        CHECK_OK(check(graph, "any"));
        const std::string text = print_graph_text(graph);
        const auto again = parse_graph_text(text, "t");
        CHECK_OK(again);
        CHECK(*again == graph);
        CHECK(print_graph_text(*again) == text);
    }
}

// An accepted text is read back the same from its own print.
void check_any_text(const std::string &text) {
    const auto graph = parse_graph_text(text, "t");
    if (!graph) {
        CHECK(graph.error().code == Code::invalid_argument);
        CHECK(std::string_view(graph.error().text).starts_with("t"));
        return;
    }
    const auto again = parse_graph_text(print_graph_text(*graph), "t");
    CHECK_OK(again);
    CHECK(*again == *graph);
}

void damage_never_crashes() {
    Random random(2);
    for (int i = 0; i < 20; i++) {
        const std::string text = print_graph_text(any_graph(random));
        for (size_t length = 0; length < text.size(); length++)
            check_any_text(text.substr(0, length));
        for (int flips = 0; flips < 500; flips++) {
            std::string damaged = text;
            damaged[random() % text.size()] ^= static_cast<char>(1 << below(random, 8));
            check_any_text(damaged);
        }
    }
}

void people_write_texts() {
    const auto graph = parse_graph_text("qccl topology 1 # mine\r\n"
                                        "\n"
                                        "  # the machine\n"
                                        "part 0 machine name \"my \\\"box\\\"\\x21\" # here\r\n"
                                        "\tpart 1 numa in 0   cpus ff,00000001\n"
                                        "link 0 1 cpu_interconnect latency 8e1 rate .5",
                                        "t");
    CHECK_OK(graph);
    CHECK(graph->vertex(0).name == "my \"box\"!");
    CHECK(graph->vertex(1).cpus.size() == 9);
    CHECK(graph->link(0).latency_ns == 80 && graph->link(0).bytes_per_ns == 0.5);
}

void refuses(const std::string &lines, const std::string &sentence) {
    const auto graph = parse_graph_text("qccl topology 1\n" + lines, "t");
    CHECK(!graph);
    CHECK_EQ(std::string(graph.error().text), "t" + sentence);
}

void wrong_lines_are_refused() {
    for (const char *text :
         {"", "qccl topology 2\n", "qccl topology 1 2\n", "qccl topology", "part 0 machine\n"}) {
        const auto graph = parse_graph_text(text, "t");
        CHECK(!graph && std::string(graph.error().text) ==
                            "t, line 1: the text does not begin with \"qccl topology 1\"");
    }
    const std::string machine = "part 0 machine\npart 1 numa in 0\n";
    refuses("", ": there is no machine in it");
    refuses("part 0 network\n", ": there is no machine in it");
    refuses(machine + "part 2 gpu in 4294967295\nlink 1 2 pcie\n",
            ", line 4: in is \"4294967295\"; expected a number from 0 on");
    refuses("gpu 0\n", ", line 2: the line's first word is \"gpu\"; possible are part, link");
    refuses("part 1 machine\n", ", line 2: part 1 stands where part 0 is expected");
    refuses("part 0 box\n", ", line 2: kind of a part is \"box\"; possible are network, machine, "
                            "package, numa, pci, nvswitch, gpu, nic");
    refuses("part 0 machine in x\n", ", line 2: in is \"x\"; expected a number from 0 on");
    refuses("part 0 machine size 4\n",
            ", line 2: key of a part is \"size\"; possible are in, number, name, bus, cpus, arch, "
            "rdma, gpudirect");
    refuses("part 0 machine name a name b\n", ", line 2: name stands twice in the line");
    refuses("part 0 machine name\n", ", line 2: name has no text");
    for (const char *text : {"\"a", "\"a\\", "\"\\n\"", "\"\\x4\"", "\"\\x4g\""})
        refuses(std::string("part 0 machine name ") + text + "\n",
                ", line 2: name has a text in quotes that does not end, or that has a \\ in front "
                "of anything but \", \\ and xHH");
    refuses("part 0 machine cpus fg\n",
            ", line 2: cpus is no mask of processors such as ff,ffffffff");
    refuses(machine + "link 0 2 tcp\n",
            ", line 4: part 2, which the link ends at, does not stand before it");
    refuses(machine + "link 0 1 wire\n",
            ", line 4: class of a link is \"wire\"; possible are nvswitch, nvlink, xgmi, "
            "shared_memory, pcie, cpu_interconnect, gpudirect_rdma, rdma, tcp");
    for (const char *rate : {"-1", "nan", "inf", "1e16", "fast", "1GB"})
        refuses(machine + "link 0 1 tcp rate " + rate + "\n",
                ", line 4: rate is \"" + std::string(rate) + "\"; expected a number from 0 on");
    refuses(machine, ": not all of its parts are connected by links");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(what_is_printed_is_read_back),
        QTEST(damage_never_crashes),
        QTEST(people_write_texts),
        QTEST(wrong_lines_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
