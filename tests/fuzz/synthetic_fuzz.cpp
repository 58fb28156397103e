// Fuzzes topology/formats/synthetic: a topology that is accepted is a sound graph.
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
    const std::string_view text(reinterpret_cast<const char *>(data), bytes);
    // Large numbers of parts only take time.
    size_t digits = 0;
    for (const char letter : text) {
        digits = letter >= '0' && letter <= '9' ? digits + 1 : 0;
        if (digits > 2) return 0;
    }
    const auto graph = parse_synthetic(text);
    if (!graph) {
        require(graph.error().code == Code::invalid_argument && graph.error().text[0] != 0,
                "a refusal without a sentence");
        return 0;
    }
    require(check(*graph, "input").is_ok(), "a graph that is refused");
    return 0;
}
