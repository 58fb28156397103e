// Fuzzes parse_npy: the values that it accepts lie within the file, to its last byte.
#include "perf/run/input_data.hpp"

#include <cstdio>
#include <cstdlib>

using namespace qccl;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const auto start = std::as_bytes(std::span(data, bytes));
    // Parses the input as a whole file, and as the start of longer files.
    for (const uint64_t file_bytes : {uint64_t{bytes}, uint64_t{bytes} + 1000, UINT64_MAX}) {
        const auto header = perf::parse_npy(start, file_bytes);
        if (!header) {
            require(header.error().code == Code::invalid_argument && header.error().text[0] != 0,
                    "a refusal without a sentence");
            continue;
        }
        require(header->data_offset <= bytes, "values that begin behind what was read");
        const uint64_t there = file_bytes - header->data_offset;
        require(there % type_bytes(header->type) == 0 &&
                    header->count == there / type_bytes(header->type),
                "values that are not the file's");
    }
    return 0;
}
