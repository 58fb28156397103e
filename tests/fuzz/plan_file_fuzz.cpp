// Texts of plan files and of items: whatever they hold they are read or refused in a sentence, and
// what was read is written so that it is read again.
#include "plan/plan_file.hpp"

#include <cstdint>
#include <cstdlib>

using namespace qccl;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const std::string_view text(reinterpret_cast<const char *>(data), bytes);
    if (const auto plan = parse_plan_file(text)) {
        const std::string written = print(*plan);
        const auto again = parse_plan_file(written);
        if (!again || print(*again) != written) abort();
    }
    if (const auto rules = parse_codec_rules(text)) {
        const auto again = parse_codec_rules(spec(*rules));
        if (!again || spec(*again) != spec(*rules)) abort();
    }
    if (const auto rules = parse_algorithm_rules(text)) (void)rules->find_algorithm({});
    return 0;
}
