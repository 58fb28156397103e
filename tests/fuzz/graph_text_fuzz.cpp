// Fuzzes the parser of topology texts: an accepted text gives a valid graph, and the printed graph
// reads back the same.
#include "topology/graph.hpp"

#include <cstdio>
#include <cstdlib>

using namespace qccl;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    std::string text(reinterpret_cast<const char *>(data), bytes);
    if (bytes > 0 && data[0] != 'q') text = std::string(graph_text_head) + "\n" + text;
    const auto graph = parse_graph_text(text, "input");
    if (!graph) {
        require(graph.error().code == Code::invalid_argument, "a refusal of the wrong kind");
        return 0;
    }
    require(check(*graph, "input").is_ok(), "a graph that is refused");
    const auto again = parse_graph_text(print_graph_text(*graph), "print");
    require(again.is_ok() && *again == *graph, "what is printed does not read back");
    return 0;
}
