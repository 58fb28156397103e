// Tests parse_explain_query() of lib/api/introspection: queries in words are parsed, what is not
// given gets a default, and unknown or repeated words are refused by name.
#include "tests/kit/qtest.hpp"

#include "api/introspection.hpp"

using namespace qccl;

static ExplainQuery parse(const char *text, uint32_t ranks = 4) {
    const auto question = parse_explain_query(text, ranks);
    CHECK_OK(question);
    return *question;
}

static void every_word_is_understood() {
    const ExplainQuery question =
        parse("broadcast  bytes=64M type=half op=avg root=3 codec=int4:block=64 algorithm=ring ");
    CHECK(question.collective == Collective::broadcast);
    CHECK(question.type == DataType::float16 && question.op == RedOp::avg);
    CHECK_EQ(question.count, uint64_t{32} << 20);
    CHECK_EQ(question.root, 3U);
    CHECK_EQ(spec(*question.codec), "int4:block=64");
    CHECK_EQ(question.algorithm, "ring");
    CHECK(!question.sample);
    const auto sample = parse("all_reduce sample=7e-3/0.006/0.5").sample;
    CHECK(sample && sample->input.nmse() == 7e-3 && sample->result.nmse() == 0.006);
    CHECK(sample->power_ratio == 0.5 && !sample->own_share);
    const auto unlike = parse("all_reduce sample=7e-3/0.006/0.5/0.25").sample;
    CHECK(unlike && unlike->power_ratio == 0.5 && unlike->own_share == 0.25);
    CHECK(parse("all_reduce sample=1/1/1/0").sample->own_share == 0);
}

static void the_rest_has_defaults() {
    const ExplainQuery question = parse("all_reduce");
    CHECK(question.type == DataType::float32 && question.op == RedOp::sum && !question.codec);
    CHECK(question.count == 0 && question.algorithm.empty() && !question.is_json);
    CHECK(!parse("all_reduce format=text").is_json && parse("all_reduce format=json").is_json);
}

static void bytes_are_those_of_the_whole_vector() {
    CHECK_EQ(parse("all_reduce bytes=4096").count, 1024U);
    CHECK_EQ(parse("reduce_scatter bytes=4096").count, 256U);
    CHECK_EQ(parse("all_gather bytes=4096 type=double").count, 128U);
    CHECK_EQ(parse("all_gather count=100 type=double").count, 100U);
}

// Where no rank knows all counts, plans go by the same count of each part, whatever the query says.
static void v_forms_are_understood() {
    const ExplainQuery common = parse("all_gather_v bytes=4096");
    CHECK(common.collective == Collective::all_gather && common.v_form == all_gather_v);
    CHECK_EQ(common.count, 256U);
    CHECK_EQ(parse("reduce_scatter_v count=7").count, 7U);
    for (const char *text : {"all_to_all_v", "gather_v bytes=4096 root=1", "scatter_v count=7"}) {
        const ExplainQuery pairwise = parse(text);
        CHECK(pairwise.v_form && row_of(*pairwise.v_form).v_form_of == pairwise.collective);
        CHECK_EQ(pairwise.count, unknown_part_count);
    }
    CHECK(!parse("all_to_all").v_form);
}

static void what_is_not_understood_is_named() {
    for (const auto &[text, word] : {std::pair{"", ""},
                                     {"all_reduce format=xml", "format=xml"},
                                     {"bytes=4", "bytes=4"},
                                     {"all_reduce all_gather", "all_gather"},
                                     {"all_reduce bytes=many", "bytes=many"},
                                     {"all_reduce colour=red", "colour=red"},
                                     {"all_reduce type=string", "type=string"},
                                     {"all_reduce root=-1", "root=-1"},
                                     {"all_reduce sample=0.1/0.1", "sample=0.1/0.1"},
                                     {"all_reduce sample=1/1/1/1/1", "sample=1/1/1/1/1"},
                                     {"all_reduce sample=1/1/1/2", "sample=1/1/1/2"},
                                     {"all_reduce sample=1/1/1/", "sample=1/1/1/"},
                                     {"all_reduce sample=1/1/1/-1", "sample=1/1/1/-1"},
                                     {"all_reduce sample=1/-1/1", "sample=1/-1/1"},
                                     {"all_reduce sample=1/1/0", "sample=1/1/0"},
                                     {"all_reduce sample=nan/1/1", "sample=nan/1/1"},
                                     {"all_reduce sample=1,1,1", "sample=1,1,1"},
                                     {"all_reduce count=9223372036854775807", "count"}}) {
        const auto refused = parse_explain_query(text, 2);
        CHECK(!refused && refused.error().code == Code::invalid_argument);
        CHECK(std::string(refused.error().text)
                  .starts_with("what: \"" + std::string(word) + "\" is not understood"));
    }
    CHECK(!parse_explain_query("all_reduce codec=int9", 2));
    const auto twice = parse_explain_query("all_reduce count=4 bytes=16", 2);
    CHECK(!twice && twice.error().code == Code::invalid_argument);
    CHECK(std::string(twice.error().text).find("bytes= and count=") != std::string::npos);
}

static void a_key_stands_once() {
    for (const auto &[text, key] : {std::pair{"all_reduce bytes=4 bytes=4", "bytes"},
                                    {"all_reduce count=4 type=half count=8", "count"},
                                    {"all_reduce type=half type=float", "type"},
                                    {"all_reduce op=sum op=max", "op"},
                                    {"broadcast root=1 root=0", "root"},
                                    {"all_reduce codec=int8 codec=int4", "codec"},
                                    {"all_reduce algorithm=ring algorithm=direct", "algorithm"}}) {
        const auto refused = parse_explain_query(text, 2);
        CHECK(!refused && refused.error().code == Code::invalid_argument);
        CHECK_EQ(std::string(refused.error().text),
                 "what: " + std::string(key) + "= is given twice");
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_word_is_understood), QTEST(a_key_stands_once),
        QTEST(the_rest_has_defaults),    QTEST(bytes_are_those_of_the_whole_vector),
        QTEST(v_forms_are_understood),   QTEST(what_is_not_understood_is_named),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
