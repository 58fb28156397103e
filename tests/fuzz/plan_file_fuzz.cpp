// Fuzzes parse_plan_file() of lib/plan/call_policy and the parsers of lib/plan/rules: every text is
// either refused or read, and a plan that was read is printed so that it reads back the same.
#include "plan/call_policy.hpp"

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
