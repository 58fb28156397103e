// base/inject: rules as a user writes them, whom they hit, and what is refused.
#include "qtest.hpp"

#include "base/inject.hpp"

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

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_rule_names_rank_call_and_fault),
        QTEST(several_rules_keep_their_order),
        QTEST(no_text_holds_no_rules),
        QTEST(what_is_no_rule_is_quoted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
