// Tests PlanFile of lib/plan/call_policy: a plan is read and written back, and refused in a
// sentence if it is damaged or belongs to another job.
#include "tests/kit/qtest.hpp"

#include "plan/call_policy.hpp"

using namespace qccl;

namespace {

constexpr const char *sample =
    "# a plan\n"
    "\n"
    "  qccl-plan version=1 rules=4\r\n"
    "job ranks=8 nodes=2\n"
    "codec=none parts=4 @count=589824,type=float32,collective=all_reduce\n"
    "algorithm=ring segment=256K lanes=2 @bytes>=1M, op=sum\n"
    "# the rest\n"
    "codec=int4:block=64,round=stochastic @comm=dp*\n"
    "algorithm=auto";

PlanFile plan(const char *text) {
    auto parsed = parse_plan_file(text);
    CHECK_OK(parsed);
    return std::move(*parsed);
}

std::string refusal(std::string_view text) {
    const auto parsed = parse_plan_file(text);
    CHECK(!parsed && parsed.error().code == Code::invalid_argument);
    return parsed.error().text;
}

std::string refused_line(const std::string &line) {
    const std::string sentence = refusal("qccl-plan version=1\n" + line + "\n");
    CHECK(sentence.starts_with("line 2: "));
    return sentence.substr(8);
}

} // namespace

static void lines_are_rules() {
    const PlanFile read = plan(sample);
    CHECK_EQ(read.ranks, 8U);
    CHECK_EQ(read.hosts, 2U);
    const auto rules = read.rules.all();
    CHECK_EQ(rules.size(), 4U);
    CHECK(rules[0].codec && rules[0].codec->is_lossless() && !rules[0].algorithm);
    CHECK(rules[0].pieces == (Pieces{.segment_bytes = 0, .parts = 4, .lanes = 0}));
    CHECK(rules[0].selector.count == (NumberRange{589824, 589824}));
    CHECK(rules[1].pieces == (Pieces{.segment_bytes = 256 << 10, .parts = 0, .lanes = 2}));
    CHECK_EQ(
        describe(rules[1]),
        "line 6 of QCCL_PLAN_FILE, \"algorithm=ring segment=256K lanes=2 @bytes>=1M, op=sum\"");
    CHECK_EQ(spec(*rules[2].codec), "int4:block=64,round=stochastic");
    CHECK(rules[3].algorithm && !*rules[3].algorithm);
}

// For the codec, the algorithm and the pieces, the first matching line that names it decides, each
// by itself.
static void wants_are_found_one_by_one() {
    const PlanFile read = plan("qccl-plan version=1\ncodec=int8 @bytes>=1K\n"
                               "codec=int4 algorithm=tree\nparts=3 algorithm=ring @count=500\n");
    const CallTraits call{.count = 500};
    CHECK_EQ(read.rules.find_codec(call)->number, 2U);
    CHECK_EQ(read.rules.find_algorithm(call)->number, 3U);
    CHECK_EQ(read.rules.find_pieces(call)->number, 4U);
}

static void what_is_written_is_read_back() {
    const PlanFile read = plan(sample), again = plan(print(read).c_str());
    CHECK_EQ(print(again), print(read));
    CHECK_EQ(print(read), "qccl-plan version=1 rules=4\njob ranks=8 nodes=2\n"
                          "codec=none parts=4 @collective=all_reduce,type=float,count=589824\n"
                          "algorithm=ring segment=262144 lanes=2 @op=sum,bytes>=1048576\n"
                          "codec=int4:block=64,round=stochastic @comm=dp*\nalgorithm=auto\n");
    CHECK_EQ(print(PlanFile()), "qccl-plan version=1\n");
    CHECK(plan("qccl-plan version=1").rules.is_empty());
}

static void what_is_no_plan_is_refused() {
    CHECK_EQ(refusal(""), "it is empty; the first line is \"qccl-plan version=1\"");
    CHECK_EQ(refusal("# nothing\n\n"), "it is empty; the first line is \"qccl-plan version=1\"");
    CHECK_EQ(refusal(std::string_view("\x7f"
                                      "ELF\0\x02",
                                      6)),
             "line 1: it is no plan file: it begins with \"?ELF??\", not with \"qccl-plan "
             "version=1\"");
    CHECK_EQ(refusal("codec=int8\n"), "line 1: it is no plan file: it begins with \"codec=int8\", "
                                      "not with \"qccl-plan version=1\"");
    CHECK_EQ(refusal("qccl-plan\n"),
             "line 1: the first line has no version; write \"qccl-plan version=1\"");
    CHECK_EQ(refusal("qccl-plan version=2 colour=red\n"),
             "line 1: it has version=2, and this library reads version 1");
    CHECK_EQ(refusal("qccl-plan version=0\n"),
             "line 1: \"version=0\": expected version= and a number from 1 to 4294967295");
    CHECK_EQ(refusal("qccl-plan version=1 rules=2\ncodec=int8\n"),
             "it is damaged: it has 1 rules, and its first line says 2");
    CHECK_EQ(refusal("qccl-plan version=1\nqccl-plan version=1\n"),
             "line 2: key is \"qccl-plan\"; possible are codec, algorithm, segment, parts, lanes");
}

static void wrong_lines_are_named() {
    for (const auto &[line, sentence] :
         {std::pair("alg=ring", "key is \"alg\"; possible are codec, algorithm, segment, parts, "
                                "lanes"),
          std::pair("codec=int9", "codec is \"int9\"; possible are"),
          std::pair("algorithm=rang", "algorithm is \"rang\"; possible are"),
          std::pair("codec=int8 codec=int4", "codec is given twice"),
          std::pair("parts=0", "\"0\" is no number from 1 to 4294967295"),
          std::pair("lanes=99999999999", "\"99999999999\" is no number from 1 to 4294967295"),
          std::pair("segment=big", "segment is \"big\"; expected a size above 0 such as 256K"),
          std::pair("segment=1K parts=2",
                    "segment and parts are both there; one of them is enough"),
          std::pair("@bytes>=1M", "it wants nothing; possible are codec, algorithm"),
          std::pair("codec=int8 @bytes<0", "\"bytes<0\" can match no call"),
          std::pair("codec=int8 @op=max", "codec int8 can match no call: it reaches sum and avg"),
          std::pair("algorithm=tree @collective=reduce_scatter", "tree can match no call"),
          std::pair("codec=int8 @bytes>=1M parts=3", "\"bytes>=1M parts=3\": expected a size"),
          std::pair("job size=3", "key is \"size\"; possible are ranks, nodes"),
          std::pair("job ranks=0", "\"ranks=0\": expected ranks= and a number from 1 to")})
        CHECK(refused_line(line).starts_with(sentence));
    CHECK(refusal("qccl-plan version=1\ncodec=int8\njob ranks=2\n")
              .starts_with("line 3: the line job stands once, before all rules"));
    // Errors print nothing that a terminal would interpret.
    const std::string sentence = refused_line("\033[2J=\x01");
    CHECK_EQ(sentence.substr(0, 14), "key is \"?[2J\";");
}

static void plans_of_other_jobs_are_refused() {
    PlanFile of_job = plan("qccl-plan version=1\njob ranks=8 nodes=2\n");
    CHECK_OK(check_job(of_job, 8, 2));
    for (const auto &[ranks, hosts] : {std::pair(4U, 2U), std::pair(8U, 1U)})
        CHECK(!check_job(of_job, ranks, hosts));
    CHECK_EQ(std::string(check_job(of_job, 4, 1).error().text),
             "it is the plan of another job: of 8 ranks on 2 nodes, and this communicator has 4 "
             "ranks on 1 node; a plan without the line job serves all, with conditions such as "
             "ranks=4");
    of_job.hosts = 0;
    CHECK_OK(check_job(of_job, 8, 5));
    CHECK_OK(check_job({}, 3, 3));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(lines_are_rules),
        QTEST(wants_are_found_one_by_one),
        QTEST(what_is_written_is_read_back),
        QTEST(what_is_no_plan_is_refused),
        QTEST(wrong_lines_are_named),
        QTEST(plans_of_other_jobs_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
