// Tests plan/rules: items of QCCL_CODEC and QCCL_ALGO, of which the first that matches a call
// counts.
#include "tests/kit/qtest.hpp"

#include "plan/rules.hpp"

#include <algorithm>

using namespace qccl;

namespace {

Rules codecs(const char *text) {
    auto rules = parse_codec_rules(text);
    CHECK_OK(rules);
    return std::move(*rules);
}

Rules algorithms(const char *text) {
    auto rules = parse_algorithm_rules(text);
    CHECK_OK(rules);
    return std::move(*rules);
}

CallTraits floats(uint64_t count, RedOp op = RedOp::sum) { return {.op = op, .count = count}; }

std::string codec_of(const Rules &rules, const CallTraits &call) {
    const Rule *const rule = rules.find_codec(call);
    return rule ? spec(*rule->codec) : "nobody";
}

std::string algorithm_of(const Rules &rules, Collective collective, uint64_t count) {
    const Rule *const rule =
        rules.find_algorithm({.collective = collective, .count = count, .ranks = 4});
    if (!rule) return "nobody";
    return *rule->algorithm ? spec(*rule->algorithm) : "auto";
}

std::string refusal(const Result<Rules> &rules) {
    CHECK(!rules && rules.error().code == Code::invalid_argument);
    return rules.error().text;
}

} // namespace

static void the_first_item_that_matches_counts() {
    const Rules rules = codecs("int4:block=64,round=stochastic@op=sum,bytes>=1M; int8@bytes>=64K ;"
                               "none@count=3;bf16;");
    CHECK_EQ(rules.all().size(), 4U);
    CHECK_EQ(codec_of(rules, floats(1 << 20)), "int4:block=64,round=stochastic");
    CHECK_EQ(codec_of(rules, floats(1 << 20, RedOp::avg)), "int8");
    CHECK_EQ(codec_of(rules, floats(1 << 14)), "int8");
    CHECK_EQ(codec_of(rules, floats(3)), "none");
    CHECK_EQ(codec_of(rules, floats(4)), "bf16");
    CHECK_EQ(codec_of(codecs("int8@bytes>=64K"), floats(4)), "nobody");
    CHECK_EQ(describe(*rules.find_codec(floats(1 << 14))),
             "item 2 of QCCL_CODEC, \"int8@bytes>=64K\"");
    CHECK_EQ(describe(*codecs("int8").find_codec(floats(4))), "QCCL_CODEC");
}

// A spec's own keys, with commas and '=', are not conditions.
static void a_single_codec_is_an_item() {
    CHECK_EQ(spec(codecs("minmax:bits=4,bucket=64")), "minmax:bits=4,bucket=64");
    CHECK_EQ(spec(codecs("none@op=avg;int8")), "none@op=avg;int8");
}

static void algorithms_without_the_collective_are_passed_over() {
    const Rules rules = algorithms("auto@bytes<1K;tree:shape=double@bytes<1M;ring");
    CHECK_EQ(algorithm_of(rules, Collective::all_reduce, 16), "auto");
    CHECK_EQ(algorithm_of(rules, Collective::all_reduce, 1 << 10), "tree:shape=double");
    CHECK_EQ(algorithm_of(rules, Collective::reduce_scatter, 1 << 10), "ring");
    CHECK_EQ(algorithm_of(rules, Collective::all_reduce, 1 << 20), "ring");
    CHECK_EQ(algorithm_of(algorithms("ring;oneshot"), Collective::barrier, 0), "oneshot");
    CHECK_EQ(algorithm_of(algorithms("ring"), Collective::barrier, 0), "nobody");
}

static void rules_of_other_communicators_are_left_out() {
    const Rules all = codecs("int4@comm=dp*,op=sum;int8@comm=tp;bf16");
    CHECK_EQ(spec(all), "int4@comm=dp*,op=sum;int8@comm=tp;bf16");
    const Rules some = all.of_communicator("dp0");
    CHECK_EQ(spec(some), "int4@op=sum;bf16");
    CHECK_EQ(some.all()[1].number, 3U); // its number in the setting
    CHECK_EQ(spec(all.of_communicator("tp")), "int8;bf16");
    CHECK_EQ(spec(all.of_communicator("")), "bf16");
}

// The index finds the same rule as a reference that checks one rule after another.
static void thousands_of_counts_are_found_like_one_after_the_other() {
    std::vector<Rule> rules;
    for (uint32_t i = 0; i < 3000; i++) {
        Rule rule;
        rule.number = i + 1;
        rule.pieces.parts = i + 1;
        const uint64_t count = uint64_t{i} * 7 % 501;
        if (i % 5 != 0) rule.selector.count = {count, count};
        if (i % 5 == 0) rule.selector.bytes = {count * 8, count * 8 + 400};
        if (i % 3 == 0) rule.selector.type = DataType::float64;
        rules.push_back(rule);
    }
    const Rules indexed(rules);
    size_t found = 0;
    for (uint64_t count = 0; count < 600; count++)
        for (const DataType type : {DataType::float32, DataType::float64}) {
            const CallTraits call{.type = type, .count = count};
            const auto slow = std::ranges::find_if(
                rules, [&](const Rule &r) { return r.selector.matches(call); });
            const Rule *const fast = indexed.find_pieces(call);
            CHECK_EQ(fast ? fast->number : 0, slow != rules.end() ? slow->number : 0);
            found += fast != nullptr;
        }
    CHECK(found > 500);
}

static void wrong_items_are_named() {
    CHECK(
        refusal(parse_codec_rules("int9")).starts_with("QCCL_CODEC: codec is \"int9\"; possible"));
    CHECK(refusal(parse_codec_rules("int8@bytes>=1M;int9"))
              .starts_with("QCCL_CODEC: item 2: codec is \"int9\"; possible are none"));
    CHECK_EQ(refusal(parse_codec_rules("int8;;none")), "QCCL_CODEC: item 2: it is empty");
    CHECK_EQ(refusal(parse_codec_rules("int8@")), "QCCL_CODEC: a condition is empty");
    CHECK(refusal(parse_algorithm_rules("ring@byts=1"))
              .starts_with("QCCL_ALGO: condition is \"byts\"; possible are comm"));
    CHECK(refusal(parse_algorithm_rules("rang;auto"))
              .starts_with("QCCL_ALGO: item 1 is \"rang\"; possible are direct"));
}

static void items_that_no_call_can_meet_are_refused() {
    const std::string reach = " can match no call: it reaches sum and avg of floating point in "
                              "all_reduce and reduce_scatter alone, not ";
    for (const char *conditions : {"op=max", "type=int32", "collective=broadcast"})
        CHECK_EQ(refusal(parse_codec_rules((std::string("int8@") + conditions).c_str())),
                 "QCCL_CODEC: codec int8" + reach + '"' + conditions + '"');
    CHECK_EQ(refusal(parse_codec_rules("int8@op=avg;int4:owner=exact@op=sum")),
             "QCCL_CODEC: item 2: codec int4:owner=exact: owner=exact is of all_gather and "
             "broadcast, and a codec that calls do not name themselves reaches reductions alone");
    CHECK_OK(parse_codec_rules("none@op=max;int8"));
    CHECK_EQ(refusal(parse_codec_rules("int8;int4@bytes>=1M")),
             "QCCL_CODEC: item 2: no call comes to \"int4@bytes>=1M\", because the item before it, "
             "\"int8\", matches all");
    CHECK_EQ(refusal(parse_algorithm_rules("auto;ring")),
             "QCCL_ALGO: item 2: no call comes to \"ring\", because the item before it, \"auto\", "
             "matches all");
    CHECK_EQ(refusal(parse_algorithm_rules("tree@collective=reduce_scatter")),
             "QCCL_ALGO: tree can match no call: it has no reduce_scatter");
    CHECK(refusal(parse_codec_rules("int8@bytes<0")).ends_with("there is no such number of bytes"));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_first_item_that_matches_counts),
        QTEST(a_single_codec_is_an_item),
        QTEST(algorithms_without_the_collective_are_passed_over),
        QTEST(rules_of_other_communicators_are_left_out),
        QTEST(thousands_of_counts_are_found_like_one_after_the_other),
        QTEST(wrong_items_are_named),
        QTEST(items_that_no_call_can_meet_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
