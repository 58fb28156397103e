// Fuzzes parse_hwloc_xml() of topology/formats/topology_xml with hostile topology files: an
// accepted file gives a sound graph, and a refusal names the file.
#include "topology/formats/read_topology.hpp"

#include <cstdio>
#include <cstdlib>

using namespace qccl;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const auto graph = parse_hwloc_xml({reinterpret_cast<const char *>(data), bytes}, "input");
    if (!graph) {
        require(graph.error().code == Code::invalid_argument, "a refusal of the wrong kind");
        require(std::string_view(graph.error().text).starts_with("input"),
                "a refusal that does not name the file");
        return 0;
    }
    require(check(*graph, "input").is_ok(), "a graph that is refused");
    return 0;
}
