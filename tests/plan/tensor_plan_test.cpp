// Tests lib/plan/tensor_plan: only large tensors are compressed, the plan is no slower than any
// other cut, and its text reads back as the same decisions.
#include "tests/kit/plan_kit.hpp"

#include "plan/planner.hpp"
#include "plan/tensor_plan.hpp"

#include <algorithm>

using namespace qccl;
using namespace qtest;

namespace {

constexpr uint32_t ranks = 4;

// One host for each rank, with 1 Gbit/s between hosts.
const RankTopology &apart() {
    static const RankTopology places({{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 3, 0}});
    return places;
}

Problem like(const char *with, const RankTopology *places = &apart()) {
    Problem problem = all_reduce(0, ranks, DataType::float32, with);
    problem.places = places;
    return problem;
}

TensorPlan planned(TensorPlanner &planner, uint64_t count, DataType type = DataType::float32) {
    const auto made = planner.plan(count, type);
    CHECK_OK(made);
    return *made;
}

TensorPlan planned(const char *with, uint64_t count, const RankTopology *places = &apart()) {
    TensorPlanner planner(like(with, places), inputs);
    return planned(planner, count);
}

} // namespace

static void large_tensors_alone_are_compressed() {
    TensorPlanner planner(like("int8"), inputs);
    const TensorPlan small = planned(planner, 16), large = planned(planner, 1 << 22);
    CHECK(!small.partitioning.is_compressed && small.plan.codec.is_lossless());
    CHECK_EQ(small.partitioning.best.parts, 1U);
    CHECK(large.partitioning.is_compressed);
    CHECK_EQ(spec(large.plan.codec), "int8");
    CHECK(large.partitioning.lossless.time > 3 * large.partitioning.best.time);
    CHECK(!planned(planner, 1 << 22, DataType::int32).partitioning.is_compressed);
    CHECK(!planned("none", 1 << 22).partitioning.is_compressed);
    CHECK(!planned("int8:min=1G", 1 << 22).partitioning.is_compressed);
    CHECK(!planned("int8", 1 << 22, nullptr).partitioning.is_compressed);
    CHECK(!planned("auto:nmse=1e-2", 1 << 22, nullptr).partitioning.is_compressed);
    PlannerInputs unknown = inputs;
    unknown.speeds.remote_rate_source = RateSource::assumed;
    TensorPlanner guessing(like("int8"), unknown), told(like("int8:min=0"), unknown);
    CHECK(!planned(guessing, 1 << 22).partitioning.is_compressed);
    CHECK(planned(told, 1 << 22).partitioning.is_compressed);
}

// Between hosts a codec is used only if the call gets faster by a quarter, unless the codec has
// min=.
static void a_codec_has_to_pay() {
    bool differs = false;
    for (uint64_t count = 16; count <= 1 << 14; count *= 2) {
        const auto usual = planned("int8", count).partitioning;
        const auto keen = planned("int8:min=0", count).partitioning;
        CHECK_EQ(usual.is_compressed, usual.lossless.time > usual.compressed.time * least_gain);
        CHECK_EQ(keen.is_compressed, keen.lossless.time > keen.compressed.time);
        differs = differs || usual.is_compressed != keen.is_compressed;
    }
    CHECK(differs);
}

// The plan is compared with other numbers of parts and with the library's own cut.
static void no_other_cut_is_faster() {
    for (const uint64_t count : {1000U, 1U << 18, 1U << 24})
        for (const char *with : {"none", "int4"}) {
            const TensorPlan made = planned(with, count);
            Problem problem = like(with);
            problem.count = count;
            PlannerInputs others = inputs;
            for (const uint64_t parts : {0U, 1U, 2U, 3U, 8U, 50U, 64U, 500U}) {
                others.limits.parts = others.usual_limits.parts = parts;
                const auto other = choose(problem, others);
                CHECK_OK(other);
                CHECK(made.plan.cost.time_ns <= other->cost.time_ns * equal_time * equal_time);
            }
        }
}

static void a_budget_is_kept() {
    const TensorPlan made = planned("auto:nmse=1e-3", 1 << 22);
    CHECK(made.partitioning.is_compressed);
    CHECK(nmse_bound(made.plan).value_or(1) <= 1e-3);
    CHECK(!planned("auto:nmse=1e-9", 1 << 22).partitioning.is_compressed);
}

static void an_algorithm_may_be_forced() {
    TensorPlanner planner(like("int8"), inputs, algorithm_of("ring"));
    CHECK_EQ(spec(planned(planner, 16).plan.algorithm), "ring");
    CHECK_EQ(spec(planned(planner, 1 << 22).plan.algorithm), "ring");
}

static void the_file_says_what_was_decided() {
    TensorPlanner planner(like("int8"), inputs);
    const std::vector<NamedTensor> tensors{{"bias", 64},
                                           {"weight", 1 << 22},
                                           {"other bias", 64},
                                           {"half", 1 << 22, DataType::float16}};
    std::vector<TensorPlan> plans;
    for (const NamedTensor &tensor : tensors)
        plans.push_back(planned(planner, tensor.count, tensor.type));
    const PlanFile written = plan_file_of(tensors, plans, ranks, 4);
    const auto read = parse_plan_file(print(written));
    CHECK_OK(read);
    CHECK_OK(check_job(*read, ranks, 4));
    CHECK_EQ(read->rules.all().size(), 3U);
    for (size_t i = 0; i < tensors.size(); i++) {
        const CallTraits call{
            .type = tensors[i].type, .count = tensors[i].count, .ranks = ranks, .hosts = 4};
        const Rule *const codec = read->rules.find_codec(call);
        CHECK(codec && codec == read->rules.find_pieces(call));
        CHECK_EQ(codec->codec->is_lossless(), plans[i].plan.codec.is_lossless());
        CHECK(*codec->algorithm == plans[i].plan.algorithm);
        CHECK_EQ(codec->pieces.parts, plans[i].partitioning.best.parts);
        // When the call is made, the library plans it with the codec, however small the gain is.
        Problem problem = like(spec(*codec->codec).c_str());
        problem.count = tensors[i].count;
        problem.type = tensors[i].type;
        PlannerInputs cut = inputs;
        cut.limits.parts = codec->pieces.parts;
        const auto plan = choose(problem, cut, *codec->algorithm);
        CHECK_OK(plan);
        CHECK(plan->codec == plans[i].plan.codec);
        CHECK(plan->geometry == plans[i].plan.geometry);
    }
}

// A caller that plans many calls shares the step counts between them.
static void shared_counts_change_no_choice() {
    StepCountCache counts;
    for (const char *with : {"none", "int8", "auto:nmse=1e-2", "auto:bits=5"})
        for (const uint64_t count : {10U, 10000U, 1U << 22}) {
            Problem problem = like(with);
            problem.count = count;
            const auto alone = choose(problem, inputs),
                       shared = choose(problem, inputs, {}, &counts);
            CHECK_OK(alone);
            CHECK_OK(shared);
            CHECK(alone->algorithm == shared->algorithm && alone->codec == shared->codec);
            CHECK(alone->cost.time_ns == shared->cost.time_ns);
        }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(large_tensors_alone_are_compressed),
        QTEST(a_codec_has_to_pay),
        QTEST(no_other_cut_is_faster),
        QTEST(a_budget_is_kept),
        QTEST(an_algorithm_may_be_forced),
        QTEST(the_file_says_what_was_decided),
        QTEST(shared_counts_change_no_choice),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
