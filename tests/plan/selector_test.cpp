// Tests Selector of lib/plan/rules: which calls the conditions match, how they are written, and
// that conditions that no call can match are refused.
#include "tests/kit/qtest.hpp"

#include "plan/rules.hpp"

using namespace qccl;

namespace {

Selector selector(const char *text) {
    const auto parsed = parse_selector(text);
    CHECK_OK(parsed);
    return *parsed;
}

std::string refusal(const char *text) {
    const auto parsed = parse_selector(text);
    CHECK(!parsed && parsed.error().code == Code::invalid_argument);
    return parsed.error().text;
}

bool matches(const char *text, const CallTraits &call) { return selector(text).matches(call); }

} // namespace

static void numbers_are_compared() {
    const CallTraits call{.count = 1024, .ranks = 8, .hosts = 2}; // 4096 bytes
    for (const char *text : {"bytes=4K", "bytes>=4096", "bytes<=4096", "bytes>4095", "bytes<4097",
                             "count=1024", "count>1023,count<1025", "ranks=8", "ranks>=2,ranks<=8",
                             "nodes=2", "nodes<3", " bytes >= 4K , ranks = 8 "})
        CHECK(matches(text, call));
    for (const char *text : {"bytes=4095", "bytes>4096", "bytes<4096", "count=1025", "ranks>8",
                             "ranks=8,nodes=1", "nodes>2"})
        CHECK(!matches(text, call));
    // `bytes` counts the whole vector, not the part of one rank.
    CHECK(matches("bytes=32K", {.collective = Collective::all_gather, .count = 1024, .ranks = 8}));
}

static void names_are_compared() {
    const CallTraits call{
        .collective = Collective::reduce_scatter, .type = DataType::bfloat16, .op = RedOp::avg};
    CHECK(matches("collective=reduce_scatter,type=bf16,op=avg", call));
    CHECK(!matches("collective=all_reduce", call));
    CHECK(!matches("type=float32", call));
    CHECK(!matches("op=sum", call));
    // A call that does not reduce has no op, and a barrier has no type.
    CHECK(!matches("op=sum", {.collective = Collective::broadcast}));
    CHECK(!matches("type=float", {.collective = Collective::barrier}));
    CHECK(matches("ranks=1", {.collective = Collective::barrier}));
}

static void names_of_communicators_are_globs() {
    const Selector some = selector("comm=dp*,bytes>=1");
    CHECK(some.matches_name("dp") && some.matches_name("dp3"));
    CHECK(!some.matches_name("tp") && !some.matches_name(""));
    CHECK(selector("comm=?p[0-3]").matches_name("tp2"));
    CHECK(selector("op=sum").matches_name("") && selector("comm=*").matches_name(""));
}

static void one_spelling_is_written_and_read_back() {
    for (const auto &[text, written] :
         {std::pair("bytes>1M,op=sum", "op=sum,bytes>=1048577"),
          std::pair("count=589824,type=float32,collective=all_reduce",
                    "collective=all_reduce,type=float,count=589824"),
          std::pair("ranks<5,ranks>=2,nodes=1,comm=a*", "comm=a*,ranks>=2,ranks<=4,nodes=1")}) {
        CHECK_EQ(spec(selector(text)), std::string(written));
        CHECK(selector(written) == selector(text));
    }
    CHECK(Selector().is_unconditional() && !selector("comm=*").is_unconditional());
    CHECK_EQ(spec(Selector()), "");
}

static void names_become_globs() {
    for (const char *name :
         {"dp", "a*b?[c]", "back\\slash", "two words, and more; @home", "\xC3\xA9"}) {
        Selector by_name;
        by_name.comm = glob_of(name);
        CHECK(by_name.matches_name(name));
        CHECK(!by_name.matches_name(std::string(name) + "x"));
        CHECK(selector(spec(by_name).c_str()).matches_name(name));
    }
    CHECK_EQ(glob_of("a*b"), "a\\*b");
    CHECK_EQ(glob_of("a b"), "a?b");
    CHECK_EQ(glob_of(""), "");
}

static void wrong_conditions_are_named() {
    for (const auto &[text, sentence] :
         {std::pair("byts>=1M", "condition is \"byts\"; possible are comm, collective, type, op, "
                                "count, bytes, ranks, nodes"),
          std::pair("op=max,op=min", "op is given twice"),
          std::pair("op=maximum", "op is \"maximum\"; possible are sum, prod, max, min, avg"),
          std::pair("type=float31", "type is \"float31\"; possible are int8,"),
          std::pair("collective=sum", "collective is \"sum\"; possible are all_reduce,"),
          std::pair("bytes>=1X", "\"bytes>=1X\": expected a size such as 64K or 1M behind bytes>="),
          std::pair("ranks>=many", "\"ranks>=many\": expected a number behind ranks>="),
          std::pair("op>=sum", "op takes = alone, not >="),
          std::pair("bytes", "bytes has no value; write bytes=VALUE"),
          std::pair("comm=", "comm has no value; write comm=VALUE"),
          std::pair("op=sum,,bytes>1", "a condition is empty"),
          std::pair("", "a condition is empty"),
          std::pair("tag=7", "tag cannot be a condition: ranks may give one call different tags")})
        CHECK(refusal(text).starts_with(sentence));
}

static void what_can_never_match_is_refused() {
    for (const auto &[text, reason] :
         {std::pair("bytes<0", "there is no such number of bytes"),
          std::pair("bytes>=2M,bytes<1M", "there is no such number of bytes"),
          std::pair("count>18446744073709551615", "there is no such number of count"),
          std::pair("ranks>65536", "a job has 1 to 65536 ranks"),
          std::pair("ranks<1", "a job has 1 to 65536 ranks"),
          std::pair("nodes=0", "a job has 1 to 65536 nodes"),
          std::pair("ranks=2,nodes=3", "a node has at least one rank"),
          std::pair("collective=all_gather,op=sum", "all_gather has no op"),
          std::pair("collective=barrier,type=float", "barrier has no type"),
          std::pair("collective=barrier,bytes>0", "barrier has no values")})
        CHECK_EQ(refusal(text), '"' + std::string(text) + "\" can match no call: " + reason);
    CHECK_OK(parse_selector("ranks>=65536")); // a job has at most that many ranks
    CHECK_OK(parse_selector("bytes<=0"));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(numbers_are_compared),
        QTEST(names_are_compared),
        QTEST(names_of_communicators_are_globs),
        QTEST(one_spelling_is_written_and_read_back),
        QTEST(names_become_globs),
        QTEST(wrong_conditions_are_named),
        QTEST(what_can_never_match_is_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
