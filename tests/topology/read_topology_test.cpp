// Tests topology/formats/read_topology: the format of a topology is recognised by its contents,
// anything else is refused with a sentence, and ranks are placed on the graph.
#include "tests/kit/qtest.hpp"
#include "tests/kit/temporary_folder.hpp"

#include "topology/formats/read_topology.hpp"
#include "topology/graph.hpp"

#include <filesystem>
#include <fstream>

#include <sys/stat.h>

using namespace qccl;

namespace {

std::string write(const qtest::TemporaryFolder &folder, const char *name,
                  const std::string &content) {
    std::ofstream(folder / name) << content;
    return folder / name;
}

void check_refused(const std::string &text, const std::string &sentence) {
    const auto graph = read_topology(text);
    CHECK(!graph && graph.error().code == Code::invalid_argument);
    CHECK_EQ(std::string(graph.error().text), sentence);
}

void files_are_recognised() {
    const qtest::TemporaryFolder folder;
    const auto made = parse_synthetic("2 x node(2 gpu) net:5");
    CHECK_OK(made);
    const auto text = read_topology(write(folder, "own", print_graph_text(*made)));
    CHECK_OK(text);
    CHECK(*text == *made);
    const auto nccl = read_topology(
        write(folder, "nccl",
              "<?xml version=\"1.0\"?>\n<!-- text -->\n<system version=\"1\"><cpu numaid=\"0\"/>"
              "</system>"));
    CHECK_OK(nccl);
    const auto hwloc =
        read_topology(write(folder, "hwloc", "<topology version=\"2.0\"></topology>"));
    CHECK(!hwloc && std::string(hwloc.error().text).find("no topology") == std::string::npos);
    const auto line = read_topology("2 x node(2 gpu) net:5");
    CHECK_OK(line);
    CHECK(*line == *made);
}

void what_holds_no_topology_is_refused() {
    const qtest::TemporaryFolder folder;
    const std::string path = folder.path();
    check_refused(path, path + " is a folder; expected a file");
    const std::string empty = write(folder, "empty", "");
    const std::string none = " holds no topology: expected XML of hwloc (<topology>), NCCL or "
                             "RCCL (<system>), or a text that begins with \"qccl topology 1\"";
    check_refused(empty, empty + none);
    const std::string other = write(folder, "other", "<html></html>");
    check_refused(other, other + none);
    const std::string newer = write(folder, "newer", "qccl topology 2\n");
    check_refused(newer, newer + ", line 1: the text does not begin with \"qccl topology 1\"");
    const std::string pipe = path + "/pipe";
    CHECK(mkfifo(pipe.c_str(), 0600) == 0);
    check_refused(pipe, pipe + " is no regular file");
    check_refused(path + "/missing.xml", path + "/missing.xml is no file, and no topology such as "
                                                "\"4 x node(8 gpu nvlink:450) net:50\"");
    check_refused(
        "4 x nodes(8 gpu)",
        "the topology, character 5 (\"nodes(8 gpu)\"): \"nodes\" is no part of a network; "
        "did you mean node?");
    // A sparse file that is larger than any topology.
    const std::string large = write(folder, "large", "");
    std::filesystem::resize_file(large, most_graph_text_bytes + 1);
    check_refused(large, large + " is larger than 268435456 bytes; no topology is");
}

std::vector<uint32_t> machines_of(const char *text, uint32_t ranks) {
    const auto graph = parse_synthetic(text);
    CHECK_OK(graph);
    const auto places = rank_places(*graph, ranks);
    CHECK_OK(places);
    std::vector<uint32_t> numbers;
    for (const uint32_t place : *places)
        numbers.push_back(graph->vertex(graph->machine_of(place)).number);
    return numbers;
}

void ranks_have_places() {
    using Numbers = std::vector<uint32_t>;
    CHECK(machines_of("2 x node(2 gpu) net:5", 0) == Numbers({0, 0, 1, 1}));
    CHECK(machines_of("2 x node(2 gpu) net:5", 3) == Numbers({0, 0, 1}));
    CHECK(machines_of("2 x node(2 numa) net:5", 0) == Numbers({0, 0, 1, 1}));
    CHECK(machines_of("2 x node(2 numa) net:5", 5) == Numbers({0, 0, 0, 1, 1}));
    CHECK(machines_of("4 x node net:5", 2) == Numbers({0, 1}));
    const auto graph = parse_synthetic("node(4 numa)");
    CHECK_OK(graph);
    const auto places = rank_places(*graph, 6);
    CHECK_OK(places);
    CHECK((*places)[1] == (*places)[0] && (*places)[5] != (*places)[4]);
    // Rank 0 gets GPU 0, as from launchers, in whatever order the file lists the GPUs.
    Graph reversed;
    reversed.add({.kind = VertexKind::machine});
    for (uint32_t i = 0; i < 3; i++)
        reversed.add({.kind = VertexKind::gpu, .parent = 0, .number = 2 - i});
    const auto by_number = rank_places(reversed, 2);
    CHECK_OK(by_number);
    CHECK(*by_number == std::vector<uint32_t>({3, 2}));
    const auto gpus = parse_synthetic("node(4 gpu)");
    CHECK_OK(gpus);
    const auto too_many = rank_places(*gpus, 5);
    CHECK(!too_many);
    CHECK_EQ(std::string(too_many.error().text),
             "the topology has 4 GPUs, too few for 5 ranks: each has its own");
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(files_are_recognised),
        QTEST(what_holds_no_topology_is_refused),
        QTEST(ranks_have_places),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
