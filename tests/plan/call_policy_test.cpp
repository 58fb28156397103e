// Tests lib/plan/call_policy: promises 1 and 2 of the numerical contract, and which of call,
// communicator, environment and plan file decides about a call.
#include "tests/kit/qtest.hpp"

#include "plan/call_policy.hpp"

#include "base/settings.hpp"

using namespace qccl;

static Codec codec(const char *spec) {
    const auto parsed = parse_codec(spec);
    CHECK_OK(parsed);
    return *parsed;
}

static constexpr CallTraits float_sum;

static CallTraits shape(Collective collective, DataType type, RedOp op) {
    return {.collective = collective, .type = type, .op = op};
}

// The policy of a communicator with that codec and name; `environment` holds the settings, `plan`
// the rows of the plan file.
static CallPolicy policy(std::optional<Codec> of_communicator,
                         const std::vector<const char *> &environment = {},
                         const char *plan = nullptr, const char *name = "") {
    std::vector<const char *> all(environment);
    if (plan) all.push_back("QCCL_PLAN_FILE=plan");
    all.push_back(nullptr);
    const auto settings = read_settings(all.data());
    CHECK_OK(settings);
    const auto rules = parse_env_rules(*settings, [&](const std::string &path) {
        CHECK_EQ(path, "plan");
        return Result<std::string>(std::string("qccl-plan version=1\n") + plan);
    });
    CHECK_OK(rules);
    CallPolicy made = policy_of(*rules, *settings, name);
    made.codec = of_communicator;
    return made;
}

static std::string chosen(const CallPolicy &policy, const Codec *of_call, const CallTraits &call) {
    const auto choice = policy.choose_codec(of_call, call);
    CHECK_OK(choice);
    return spec(choice->codec);
}

static void lossless_by_default() { CHECK_EQ(chosen({}, nullptr, float_sum), "none"); }

static void the_call_precedes_the_communicator_precedes_the_environment() {
    const Codec int8 = codec("int8"), none;
    CHECK_EQ(chosen(policy(codec("int4"), {"QCCL_CODEC=int2"}), &int8, float_sum), "int8");
    CHECK_EQ(chosen(policy(codec("int4"), {"QCCL_CODEC=int2"}), nullptr, float_sum), "int4");
    CHECK_EQ(chosen(policy({}, {"QCCL_CODEC=int2"}), nullptr, float_sum), "int2");
    // The environment cannot override an explicit none.
    CHECK_EQ(chosen(policy(codec("int4"), {"QCCL_CODEC=int2"}), &none, float_sum), "none");
    CHECK_EQ(chosen(policy(none, {"QCCL_CODEC=int2"}), nullptr, float_sum), "none");
}

static void only_a_call_reaches_what_does_not_reduce() {
    const Codec int8 = codec("int8");
    for (const auto collective : {Collective::all_gather, Collective::broadcast}) {
        const CallTraits call = shape(collective, DataType::float32, RedOp::sum);
        CHECK_EQ(chosen(policy(int8, {"QCCL_CODEC=int8"}), nullptr, call), "none");
        CHECK_EQ(chosen({}, &int8, call), "int8");
    }
    CHECK_EQ(chosen(policy({}, {"QCCL_CODEC=auto:nmse=0.1"}), nullptr, float_sum), "auto:nmse=0.1");
    const CallTraits scatter = shape(Collective::reduce_scatter, DataType::float16, RedOp::avg);
    CHECK_EQ(chosen(policy({}, {"QCCL_CODEC=int8"}), nullptr, scatter), "int8");
}

static void the_environment_reaches_sum_and_avg_of_floating_point() {
    const CallPolicy environment = policy({}, {"QCCL_CODEC=bf16"}),
                     communicator = policy(codec("bf16"));
    const CallTraits max = shape(Collective::all_reduce, DataType::float32, RedOp::max);
    const auto passed_over = environment.choose_codec(nullptr, max);
    CHECK_OK(passed_over);
    CHECK(passed_over->codec.is_lossless() && passed_over->passed_over);
    CHECK_EQ(std::string(passed_over->passed_over->text),
             "codec bf16 of QCCL_CODEC: reaches sum and avg of floating point, not max of float");
    CHECK_EQ(chosen(communicator, nullptr, max), "bf16"); // a cast is possible, and was asked for
}

static void an_impossible_codec_is_refused_only_where_the_call_names_it() {
    const CallTraits max = shape(Collective::all_reduce, DataType::float32, RedOp::max);
    const CallTraits integers = shape(Collective::all_reduce, DataType::int32, RedOp::sum);
    for (const Codec &impossible : {codec("int4"), codec("auto:nmse=0.1")})
        for (const CallTraits &call : {max, integers}) {
            const auto refused = CallPolicy{}.choose_codec(&impossible, call);
            CHECK(!refused && refused.error().code == Code::invalid_argument);
            const auto passed_over = policy(impossible).choose_codec(nullptr, call);
            CHECK_OK(passed_over);
            CHECK(passed_over->codec.is_lossless() && passed_over->passed_over);
        }
}

// Exact sums lose nothing, and yet are asked for.
static void the_environment_may_ask_for_exact_sums() {
    const CallPolicy exact = policy({}, {"QCCL_CODEC=exact"});
    CHECK_EQ(chosen(exact, nullptr, float_sum), "exact");
    CHECK_EQ(exact.codec_text(), policy({}, {"QCCL_CODEC=exact"}).codec_text());
    CHECK(exact.codec_text() != policy({}, {"QCCL_CODEC=none"}).codec_text());
    const CallPolicy communicator = policy(codec("exact"));
    CHECK_EQ(chosen(communicator, nullptr, float_sum), "exact");
    const CallTraits max = shape(Collective::all_reduce, DataType::float32, RedOp::max);
    CHECK_EQ(chosen(exact, nullptr, max), "none");
    CHECK_EQ(chosen(communicator, nullptr, max), "none");
}

static void integers_are_summed_as_long_as_they_are_exact() {
    const Codec shared = codec("shared:bits=8");
    CallPolicy of_comm = policy(shared);
    for (const uint32_t ranks : {132104U, 132105U}) { // 127 times as many are 2^24 and more
        of_comm.ranks = ranks;
        CHECK(of_comm.choose_codec(&shared, float_sum).is_ok() == (ranks == 132104));
        CHECK_EQ(chosen(of_comm, nullptr, float_sum), ranks == 132104 ? "shared:bits=8" : "none");
    }
    of_comm.ranks = 2;
    of_comm.most_exact_ranks = 27; // a rank has a GPU
    CHECK_EQ(chosen(of_comm, nullptr, float_sum), "shared:bits=8");
}

// All ranks refuse what a GPU of one of them cannot sum; what was not asked for in the call goes
// without.
static void exact_sums_end_where_those_of_gpus_end() {
    const Codec exact = codec("exact");
    for (const uint32_t ranks : {27U, 28U}) {
        CallPolicy gpus = policy(exact);
        gpus.ranks = ranks;
        CHECK_EQ(chosen(gpus, &exact, float_sum), "exact");
        gpus.most_exact_ranks = 27;
        CHECK(gpus.choose_codec(&exact, float_sum).is_ok() == (ranks == 27));
        CHECK_EQ(chosen(gpus, nullptr, float_sum), ranks == 27 ? "exact" : "none");
        const Codec int8 = codec("int8");
        CHECK_EQ(chosen(gpus, &int8, float_sum), "int8");
    }
}

static void items_decide_by_the_call() {
    const CallPolicy items = policy({}, {"QCCL_CODEC=int4@bytes>=1M,op=sum;int8@bytes>=64K"});
    for (const auto &[count, op, expected] :
         {std::tuple(1 << 18, RedOp::sum, "int4"), std::tuple(1 << 18, RedOp::avg, "int8"),
          std::tuple(1 << 14, RedOp::sum, "int8"), std::tuple(100, RedOp::sum, "none"),
          std::tuple(1 << 18, RedOp::max, "none")}) {
        const CallTraits call = items.traits(Collective::all_reduce, DataType::float32, op,
                                             static_cast<uint64_t>(count));
        CHECK_EQ(chosen(items, nullptr, call), std::string(expected));
        CHECK_EQ(chosen({}, nullptr, call), "none");
    }
    // A call is reported as passed over only if an item matches it.
    CHECK(
        !items.choose_codec(nullptr, shape(Collective::all_reduce, DataType::float32, RedOp::max))
             ->passed_over);
    CallTraits large = shape(Collective::all_reduce, DataType::float32, RedOp::max);
    large.count = 1 << 20;
    CHECK(items.choose_codec(nullptr, large)->passed_over);
}

// QCCL_CODEC and QCCL_ALGO each take precedence over the plan file. An item that names none decides
// as well.
static void settings_precede_the_plan_file() {
    static constexpr const char *plan = "codec=int2 algorithm=tree lanes=2 parts=3 @count>=10\n";
    const CallTraits small{.count = 9}, large{.count = 10};
    const CallPolicy alone = policy({}, {}, plan);
    CHECK_EQ(chosen(alone, nullptr, small), "none");
    CHECK_EQ(chosen(alone, nullptr, large), "int2");
    CHECK_EQ(spec(alone.choose_algorithm(large).algorithm), "tree");
    CHECK(!alone.choose_algorithm(small).algorithm);
    CHECK_EQ(chosen(policy({}, {"QCCL_CODEC=int8@count<20"}, plan), nullptr, large), "int8");
    CHECK_EQ(chosen(policy({}, {"QCCL_CODEC=int8@count<10"}, plan), nullptr, large), "int2");
    CHECK_EQ(chosen(policy({}, {"QCCL_CODEC=none"}, plan), nullptr, large), "none");
    CHECK_EQ(chosen(policy(Codec(), {}, plan), nullptr, large), "none");
    const CallPolicy both = policy({}, {"QCCL_ALGO=auto@count=10;ring@count<30"}, plan);
    CHECK(!both.choose_algorithm(large).algorithm);
    CHECK_EQ(spec(both.choose_algorithm({.count = 11}).algorithm), "ring");
    CHECK_EQ(spec(both.choose_algorithm({.count = 30}).algorithm), "tree");
    // The plan file's codec applies to the same calls as QCCL_CODEC's.
    CallTraits max = shape(Collective::all_reduce, DataType::float32, RedOp::max);
    max.count = 10;
    CHECK_EQ(
        std::string(alone.choose_codec(nullptr, max)->passed_over->text),
        "codec int2 of QCCL_PLAN_FILE: reaches sum and avg of floating point, not max of float");
    // Settings of segment and lanes take precedence over the plan file's.
    CHECK(alone.choose_pieces(large) == (Pieces{.segment_bytes = 0, .parts = 3, .lanes = 2}));
    CHECK(policy({}, {"QCCL_SEGMENT=1M"}, plan).choose_pieces(large) ==
          (Pieces{.segment_bytes = 0, .parts = 0, .lanes = 2}));
    CHECK(policy({}, {"QCCL_LANES=1"}, plan).choose_pieces(large) ==
          (Pieces{.segment_bytes = 0, .parts = 3, .lanes = 0}));
}

static void the_communicator_s_algorithm_precedes_all() {
    CallPolicy named = policy({}, {"QCCL_ALGO=ring"}, "algorithm=tree\n");
    CHECK_EQ(spec(named.choose_algorithm({}).algorithm), "ring");
    named.algorithm = *parse_algorithm("tree:shape=double");
    CHECK_EQ(spec(named.choose_algorithm({}).algorithm), "tree:shape=double");
    // The planner chooses for a collective that the algorithm does not support.
    CHECK(!named.choose_algorithm({.collective = Collective::reduce_scatter}).algorithm);
}

// A rule for a collective may name an algorithm that lacks the form.
static void what_lacks_the_v_form_is_passed_over() {
    const CallTraits call{.collective = Collective::all_to_all};
    const CallPolicy bruck = policy({}, {"QCCL_ALGO=bruck"}, {});
    CHECK_EQ(spec(bruck.choose_algorithm(call).algorithm), "bruck");
    CHECK(!bruck.choose_algorithm(call, all_to_all_v).algorithm);
    const auto none = bruck.choose(nullptr, {}, call, all_to_all_v);
    CHECK_OK(none);
    CHECK(!none->algorithm && none->reasons.empty());
    CallPolicy pairwise = policy({}, {}, "algorithm=pairwise\n");
    CHECK_EQ(spec(pairwise.choose_algorithm(call, all_to_all_v).algorithm), "pairwise");
    pairwise.algorithm = *parse_algorithm("bruck");
    CHECK(!pairwise.choose_algorithm(call, all_to_all_v).algorithm);
}

static void ranks_compare_what_concerns_the_communicator() {
    const std::vector<const char *> items{"QCCL_CODEC=int4@comm=dp*,op=sum;int8@comm=tp",
                                          "QCCL_ALGO=ring@comm=dp*"};
    const CallPolicy dp = policy({}, items, "codec=none @comm=dp1\n", "dp0");
    CHECK_EQ(dp.codec_text(), "int4@op=sum by QCCL_CODEC");
    CHECK_EQ(dp.algorithm_text(), "ring");
    CHECK_EQ(dp.plan_text(), "qccl-plan version=1;");
    const CallPolicy other = policy({}, items, nullptr, "other");
    CHECK_EQ(other.codec_text(), "none");
    CHECK_EQ(other.algorithm_text(), "auto");
    CHECK_EQ(other.plan_text(), "none");
    CHECK_EQ(policy(codec("int8"), items, nullptr, "dp").codec_text(), "int8");
    CHECK_EQ(policy({}, {"QCCL_CODEC=none"}).codec_text(), "none");
}

static void wrong_plan_files_are_named() {
    const char *const environment[] = {"QCCL_PLAN_FILE=/some/where", nullptr};
    const auto settings = read_settings(environment);
    const auto damaged = parse_env_rules(
        *settings, [](const std::string &) { return Result<std::string>(std::string("x")); });
    CHECK(!damaged && damaged.error().code == Code::invalid_argument);
    CHECK(std::string(damaged.error().text)
              .starts_with("QCCL_PLAN_FILE: /some/where: line 1: it is no plan file"));
    const auto missing = parse_env_rules(*settings, [](const std::string &) -> Result<std::string> {
        return invalid_argument("it is a directory, not a file");
    });
    CHECK(!missing);
    CHECK_EQ(std::string(missing.error().text),
             "QCCL_PLAN_FILE: /some/where: it is a directory, not a file");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(lossless_by_default),
        QTEST(the_call_precedes_the_communicator_precedes_the_environment),
        QTEST(only_a_call_reaches_what_does_not_reduce),
        QTEST(the_environment_reaches_sum_and_avg_of_floating_point),
        QTEST(an_impossible_codec_is_refused_only_where_the_call_names_it),
        QTEST(the_environment_may_ask_for_exact_sums),
        QTEST(integers_are_summed_as_long_as_they_are_exact),
        QTEST(exact_sums_end_where_those_of_gpus_end),
        QTEST(items_decide_by_the_call),
        QTEST(settings_precede_the_plan_file),
        QTEST(the_communicator_s_algorithm_precedes_all),
        QTEST(what_lacks_the_v_form_is_passed_over),
        QTEST(ranks_compare_what_concerns_the_communicator),
        QTEST(wrong_plan_files_are_named),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
