// Tests lib/plan with reproducible tables: the choice follows from the problem without its places.
#include "tests/kit/plan_kit.hpp"

using namespace qccl;
using namespace qtest;

// With reproducible tables two machines choose alike, whatever else differs between them.
static void reproducible_choices_follow_from_the_problem() {
    const ShapeLimits usual = inputs.limits;
    const PlannerInputs ours = reproducible_inputs(usual, usual);
    const PlannerInputs theirs = reproducible_inputs(
        {.arena_bytes = mebibyte, .segment_bytes = 4 << 20, .max_lanes = 1}, usual);
    const RankTopology places = places_on({0, 1, 0, 1});
    PlannerInputs unlike = inputs; // with these the same problem may get another plan
    unlike.speeds.remote_bytes_per_ns = 12.5;
    unlike.speeds.local.alone.latency_ns = 20000;
    size_t differing = 0;
    for (const char *codec : {"none", "int4", "onebit"})
        for (const DataType type : {DataType::float32, DataType::bfloat16})
            for (uint64_t count = 1; count < uint64_t{1} << 26; count = count * 5 + 3) {
                const Problem here = all_reduce(count, 4, type, codec);
                Problem there = here;
                there.places = &places;
                const auto plan = choose(here, ours), other = choose(there, theirs);
                CHECK_OK(plan);
                CHECK_OK(other);
                CHECK(plan->algorithm == other->algorithm);
                CHECK(plan->codec == other->codec &&
                      plan->codec.is_lossless() == here.codec.is_lossless());
                CHECK(plan->geometry.segment <= other->geometry.segment);
                const auto free = choose(there, unlike);
                CHECK_OK(free);
                differing += free->algorithm != plan->algorithm || free->codec != plan->codec;
            }
    CHECK(differing != 0);
}

static void reproducible_choices_are_explained_and_refuse_hierarchies() {
    const PlannerInputs ours = reproducible_inputs(inputs.limits, inputs.limits);
    const RankTopology places = places_on({0, 1, 0, 1});
    Problem problem = all_reduce(1000, 4);
    problem.places = &places;
    const auto text = explain_in_text(problem, ours);
    CHECK_OK(text);
    CHECK(text->find("reproducible: chosen by fixed speeds") != std::string::npos);
    CHECK(text->find("hosts with") == std::string::npos);
    const auto refused = choose(problem, ours, algorithm_of("hierarchy:share=leader"));
    CHECK(!refused && refused.error().code == Code::invalid_argument);
    CHECK_EQ(std::string(refused.error().text),
             "hierarchy:share=leader sums in an order that depends on where the ranks are, which a "
             "reproducible communicator rules out");
    CHECK_OK(choose(problem, ours, algorithm_of("ring")));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(reproducible_choices_follow_from_the_problem),
        QTEST(reproducible_choices_are_explained_and_refuse_hierarchies),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
