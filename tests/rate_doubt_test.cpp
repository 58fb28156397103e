// plan: a rate between hosts that was not measured may be wrong. The choice then loses little
// whatever the rate is; where it was measured, the choice is the fastest.
#include "plan_kit.hpp"

#include <algorithm>
#include <limits>

using namespace qccl;
using namespace qtest;

namespace {

const Places two_by_two = places_on({0, 0, 1, 1});
const Places four = places_on({0, 1, 2, 3});

Tables with_rate(double bytes_per_ns, RateSource source) {
    Tables with = tables;
    with.speeds.far_bytes_per_ns = bytes_per_ns;
    with.speeds.far_rate_source = source;
    return with;
}

Problem problem_of(Collective collective, const Places &places, uint64_t bytes, const char *name) {
    Problem problem = all_reduce(bytes / 4, places.ranks(), DataType::float32, name);
    problem.collective = collective;
    if (has_part_per_rank(collective)) problem.count /= places.ranks();
    problem.places = &places;
    return problem;
}

// Calls each problem of a table with a rate for it.
template <class Check> void for_problems(const Check &check) {
    for (const Places *const places : {&two_by_two, &four})
        for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter,
                                            Collective::all_gather, Collective::broadcast})
            for (const char *const name : {"none", "int8:min=0"})
                for (uint64_t bytes = 64; bytes <= 64 * mebibyte; bytes *= 8)
                    for (const double rate : {0.03, 0.12, 0.5, 1.2, 5.0, 20.0})
                        check(problem_of(collective, *places, bytes, name), rate);
}

double fastest(const std::vector<Candidate> &candidates) {
    double least = std::numeric_limits<double>::infinity();
    for (const Candidate &each : candidates)
        if (each.refusal.empty()) least = std::min(least, each.plan.cost.time_ns);
    return least;
}

std::vector<Candidate> candidates_at(const Problem &problem, double rate) {
    const auto found = find_candidates(problem, with_rate(rate, RateSource::measured));
    CHECK_OK(found);
    return *found;
}

void doubted_times_are_those_at_the_other_rates() {
    for_problems([](const Problem &problem, double rate) {
        const auto stated = find_candidates(problem, with_rate(rate, RateSource::stated));
        CHECK_OK(stated);
        const auto same = candidates_at(problem, rate), slow = candidates_at(problem, rate / 4),
                   fast = candidates_at(problem, rate * 4);
        for (size_t i = 0; i < stated->size(); i++) {
            const Cost &cost = (*stated)[i].plan.cost;
            CHECK_EQ(cost.time_ns, same[i].plan.cost.time_ns);
            CHECK_EQ(cost.slow_network_ns, slow[i].plan.cost.time_ns);
            CHECK_EQ(cost.fast_network_ns, fast[i].plan.cost.time_ns);
            CHECK_EQ(same[i].plan.cost.slow_network_ns, same[i].plan.cost.time_ns);
            CHECK_EQ(same[i].plan.cost.fast_network_ns, same[i].plan.cost.time_ns);
        }
    });
}

// Counted again, without LeastTimes.
double regret_of(const Problem &problem, double rate, size_t candidate) {
    double most = 0;
    for (const double times : {0.25, 1.0, 4.0}) {
        const auto all = candidates_at(problem, times * rate);
        most = std::max(most, all[candidate].plan.cost.time_ns / fastest(all));
    }
    return most;
}

void a_doubtful_rate_gets_the_least_regret() {
    uint32_t others = 0;
    for_problems([&](const Problem &problem, double rate) {
        const auto plan = choose(problem, with_rate(rate, RateSource::stated));
        const auto trusting = choose(problem, with_rate(rate, RateSource::measured));
        CHECK_OK(plan);
        CHECK_OK(trusting);
        others += plan->algorithm != trusting->algorithm;
        const auto all = candidates_at(problem, rate);
        const double least_time = fastest(all);
        CHECK(plan->cost.time_ns <= 1.25 * least_time);
        CHECK(trusting->cost.time_ns <= equal_time * least_time);
        double least = std::numeric_limits<double>::infinity(), own = 0;
        for (size_t i = 0; i < all.size(); i++) {
            if (!all[i].refusal.empty() || all[i].plan.cost.time_ns > 1.25 * least_time) continue;
            const double regret = regret_of(problem, rate, i);
            least = std::min(least, regret);
            if (all[i].plan.algorithm == plan->algorithm) own = regret;
        }
        CHECK(own >= 1 && own <= least * equal_time);
    });
    CHECK(others > 10);
}

// On one host no rate between hosts counts.
void ranks_of_one_host_doubt_nothing() {
    const Places one = places_on({0, 0, 0, 0});
    const Problem problem = problem_of(Collective::all_reduce, one, mebibyte, "none");
    const auto plan = choose(problem, with_rate(0.1, RateSource::stated));
    CHECK_OK(plan);
    CHECK_EQ(plan->cost.slow_network_ns, plan->cost.time_ns);
    CHECK_EQ(plan->cost.fast_network_ns, plan->cost.time_ns);
}

// Somewhere between the rates at which a codec gains much and those at which it gains nothing it
// is used by a stated rate alone; never where it is predicted to make the call slower.
void a_codec_is_used_where_it_loses_little_and_may_gain_much() {
    uint32_t by_stated_alone = 0;
    for (uint64_t bytes = 1 << 10; bytes <= 4 * mebibyte; bytes *= 4)
        for (double rate = 0.01; rate < 100; rate *= 1.2) {
            const Problem encoded = problem_of(Collective::all_reduce, four, bytes, "int8"),
                          lossless = problem_of(Collective::all_reduce, four, bytes, "none");
            const auto stated = choose(encoded, with_rate(rate, RateSource::stated)),
                       measured = choose(encoded, with_rate(rate, RateSource::measured)),
                       without = choose(lossless, with_rate(rate, RateSource::stated));
            CHECK_OK(stated);
            CHECK_OK(measured);
            CHECK_OK(without);
            if (stated->codec.is_lossless()) continue;
            CHECK(stated->cost.time_ns < without->cost.time_ns);
            by_stated_alone += measured->codec.is_lossless();
        }
    CHECK(by_stated_alone > 0);
}

// The first problem of the table in which caution decides is explained by it.
void the_explanation_says_so() {
    bool is_explained = false;
    for_problems([&](const Problem &problem, double rate) {
        if (is_explained) return;
        const Tables stated = with_rate(rate, RateSource::stated);
        const auto plan = choose(problem, stated);
        CHECK_OK(plan);
        if (plan->cost.time_ns < equal_time * fastest(candidates_at(problem, rate))) return;
        const auto text = explain_in_text(problem, stated);
        CHECK_OK(text);
        CHECK(text->find("GB/s for all of a host, stated and not measured\n") != text->npos);
        CHECK(text->find("of the time, but up to ") != text->npos);
        CHECK(text->find("if the rate between hosts, which was stated and not measured, is wrong "
                         "by 4 times, at most ") != text->npos);
        is_explained = true;
    });
    CHECK(is_explained);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(doubted_times_are_those_at_the_other_rates),
        QTEST(a_doubtful_rate_gets_the_least_regret),
        QTEST(ranks_of_one_host_doubt_nothing),
        QTEST(a_codec_is_used_where_it_loses_little_and_may_gain_much),
        QTEST(the_explanation_says_so),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
