// Tests lib/plan/sampled_error: when a guard makes calls lossless, when it lets them use their
// codec again, and what error is estimated from samples.
#include "tests/kit/qtest.hpp"

#include "plan/sampled_error.hpp"

#include <cmath>

using namespace qccl;

namespace {

using Change = GuardState::Change;

// Notes samples of this error until the codec returns. Returns how many were needed; 0: the codec
// does not return.
uint32_t samples_until_return(GuardState &state, double nmse, double budget) {
    for (uint32_t samples = 1; samples < 10000; samples++)
        if (state.note(nmse, budget) == Change::returns) return samples;
    return 0;
}

void an_error_above_the_budget_ends_the_codec() {
    GuardState state;
    CHECK(state.note(0.01, 0.01) == Change::none);
    CHECK(!state.is_lossless());
    CHECK(state.note(0.0101, 0.01) == Change::falls_back);
    CHECK(state.is_lossless());
    CHECK_EQ(state.latest(), 0.0101);
    CHECK(state.note(0.5, 0.01) == Change::none); // calls are lossless already
}

void it_returns_when_samples_keep_half_of_the_budget() {
    GuardState state;
    state.note(1, 0.01);
    for (int i = 0; i < 15; i++) CHECK(state.note(0.005, 0.01) == Change::none);
    CHECK(state.note(0.0051, 0.01) == Change::none); // the count starts again
    CHECK_EQ(samples_until_return(state, 0.005, 0.01), GuardState::fewest_to_return);
    CHECK(!state.is_lossless());
    // An error between half of the budget and the whole budget never brings the codec back.
    state.note(1, 0.01);
    CHECK_EQ(samples_until_return(state, 0.008, 0.01), 0U);
    // Nor do samples of zeros, which are no evidence.
    CHECK_EQ(samples_until_return(state, 0, 0.01), 0U);
}

void each_fall_makes_the_way_back_longer() {
    GuardState state;
    for (uint32_t expected = 16; expected <= 4096; expected *= 2) {
        CHECK(state.note(1, 0.01) == Change::falls_back);
        CHECK_EQ(samples_until_return(state, 0.001, 0.01), std::min(expected, 1024U));
    }
}

void samples_are_composed_as_predictions_are() {
    for (const char *text : {"int8", "int4", "terngrad", "onebit", "fp8e4m3"}) {
        const Codec codec = *parse_codec(text);
        for (const uint32_t ranks : {2U, 5U, 16U}) {
            const double encodes = (ranks + 1) / 2.0;
            Plan plan{.algorithm = {}, .codec = codec};
            plan.cost.noise.first = encodes;
            plan.cost.summands = ranks;
            const Loss once = loss_of(codec, DataType::float32, 1, 1);
            const double estimate = estimated_nmse(encode_counts(plan, Collective::all_reduce),
                                                   {.loss = once, .inner_loss = {}});
            CHECK(encode_counts(plan, Collective::all_reduce).loses());
            CHECK(std::abs(estimate / predicted_nmse(plan, DataType::float32) - 1) < 1e-9);
        }
    }
    CHECK(!encode_counts({}, Collective::all_reduce).loses());
}

void ranks_that_cancel_each_other_out_weigh_errors_more() {
    CHECK_EQ(cancellation_of(1, 4, 4), 1.0);  // independent ranks
    CHECK_EQ(cancellation_of(1, 16, 4), 1.0); // equal ranks
    CHECK_EQ(cancellation_of(1, 0.04, 4), 100.0);
    CHECK_EQ(cancellation_of(0, 1, 4), 1.0);
    CHECK_EQ(cancellation_of(1, 0, 4), 1e12); // the ranks cancel out entirely
    const EncodeCounts counts{
        .codec = *parse_codec("int8"), .inner_codec = {}, .encodes = {.first = 2}};
    CHECK(std::abs(estimated_nmse(counts, {{0, 1e-4}, {}, 100}) - 0.02) < 1e-12);
}

} // namespace

int main() {
    static const CMUnitTest tests[] = {
        QTEST(an_error_above_the_budget_ends_the_codec),
        QTEST(it_returns_when_samples_keep_half_of_the_budget),
        QTEST(each_fall_makes_the_way_back_longer),
        QTEST(samples_are_composed_as_predictions_are),
        QTEST(ranks_that_cancel_each_other_out_weigh_errors_more),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
