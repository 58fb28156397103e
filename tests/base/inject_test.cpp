// Tests the rules of QCCL_INJECT in lib/base/settings: their parsing, the ranks and calls that a
// rule hits, and refusals.
#include "tests/kit/qtest.hpp"

#include "base/settings.hpp"

using namespace qccl;
using namespace std::chrono_literals;

static void a_rule_names_rank_call_and_fault() {
    const auto rules = parse_inject("rank=3,call=100,kill");
    CHECK_OK(rules);
    CHECK_EQ(rules->size(), size_t{1});
    const InjectRule &rule = rules->front();
    CHECK(rule.fault == Fault::kill);
    CHECK(rule.hits(3, 100));
    CHECK(!rule.hits(2, 100));
    CHECK(!rule.hits(3, 99));
}

static void several_rules_keep_their_order() {
    const auto rules = parse_inject("call=7,delay=5s,rank=0;rank=1,revoke;delay=20us;");
    CHECK_OK(rules);
    CHECK_EQ(rules->size(), size_t{3});
    CHECK((*rules)[0].fault == Fault::delay && (*rules)[0].delay == 5s);
    CHECK((*rules)[1].fault == Fault::revoke && (*rules)[1].hits(1, 12345));
    CHECK(!(*rules)[1].hits(0, 12345));
    CHECK((*rules)[2].delay == 20us && (*rules)[2].hits(9, 9));
}

static void no_text_holds_no_rules() {
    const auto rules = parse_inject("");
    CHECK_OK(rules);
    CHECK(rules->empty());
}

static void what_is_no_rule_is_quoted() {
    for (const char *bad :
         {"kil", "rank=3", "rank=3,kill,revoke", "rank=,kill", "rank=-1,kill", "rank=1,rank=2,kill",
          "call=1,call=1,kill", "delay=", "delay=5parsecs,rank=1", "kill=9", "rank=4294967296,kill",
          "rank=1,kill;nonsense", "rank=3 ,kill", "rank=1,,kill", ","}) {
        const auto rules = parse_inject(bad);
        CHECK(!rules);
        CHECK(rules.error().code == Code::invalid_argument);
    }
    CHECK(
        std::string(parse_inject("kill;nonsense").error().text).starts_with("\"nonsense\" is not"));
}

// There are two ranks; calls are numbered from 1.
static void what_can_never_happen_is_told() {
    static constexpr const char *cases[][2] = {
        {"kill", nullptr},
        {"rank=1,call=7,kill;rank=0,delay=1s;rank=1,call=3,delay=1s", nullptr},
        {"rank=1,call=7,revoke;rank=1,call=7,delay=1s;call=7,kill", nullptr},
        {"rank=1,delay=1s;kill", nullptr},
        {"rank=2,kill", "\"rank=2,kill\" does nothing: the ranks are 0 to 1"},
        {"call=0,kill;rank=1,call=3,kill", "\"call=0,kill\" does nothing: calls count from 1"},
        {"delay=0s", "\"delay=0s\" does nothing: a delay of 0 is none"},
        {"kill;rank=1,call=3,revoke",
         "\"rank=1,call=3,revoke\" does nothing: \"kill\" ends all calls before"},
        {"rank=0,call=3,delay=1s;rank=0,call=2,revoke",
         "\"rank=0,call=3,delay=1s\" does nothing: \"rank=0,call=2,revoke\" ends all calls before"},
        {"call=2,kill;rank=1,call=2,delay=1s",
         "\"rank=1,call=2,delay=1s\" does nothing: \"call=2,kill\" ends all calls before"},
    };
    for (const auto &[text, said] : cases) {
        const auto rules = parse_inject(text);
        CHECK_OK(rules);
        const auto sentences = futile_rules(*rules, 2);
        CHECK_EQ(sentences.size(), size_t{said ? 1U : 0U});
        if (said) CHECK_EQ(sentences[0], "QCCL_INJECT: " + std::string(said));
    }
    CHECK_EQ(futile_rules(*parse_inject("rank=9,kill;call=0,kill"), 2).size(), size_t{2});
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_rule_names_rank_call_and_fault), QTEST(several_rules_keep_their_order),
        QTEST(no_text_holds_no_rules),           QTEST(what_is_no_rule_is_quoted),
        QTEST(what_can_never_happen_is_told),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
