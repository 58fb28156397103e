// Fuzzes parse_inject() of lib/base/settings: rules that it accepts read back from their printed
// texts, and the checks for rules that never apply work for all of them.
#include "base/settings.hpp"

#include <cstdio>
#include <cstdlib>

using namespace qccl;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static bool is_same(const InjectRule &a, const InjectRule &b) {
    return a.rank == b.rank && a.call == b.call && a.fault == b.fault && a.delay == b.delay &&
           a.text == b.text;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const auto rules = parse_inject({reinterpret_cast<const char *>(data), bytes});
    if (!rules) {
        require(rules.error().code == Code::invalid_argument && rules.error().text[0] != 0,
                "a refusal without a sentence");
        return 0;
    }
    for (const InjectRule &rule : *rules) {
        const auto again = parse_inject(rule.text);
        require(again.is_ok() && again->size() == 1 && is_same(again->front(), rule),
                "a rule's text does not lead back");
        require(rule.delay.count() >= 0, "a delay into the past");
        (void)rule.hits(0, 1);
    }
    for (const uint32_t ranks : {1U, 4U})
        require(futile_rules(*rules, ranks).size() <= rules->size(), "more sentences than rules");
    return 0;
}
