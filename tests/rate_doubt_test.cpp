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

// Counted again, without MinimaxRegret.
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
        // None that is as cautious is clearly faster.
        for (size_t i = 0; i < all.size(); i++)
            if (all[i].refusal.empty() && regret_of(problem, rate, i) <= own)
                CHECK(plan->cost.time_ns <= all[i].plan.cost.time_ns * equal_time);
    });
    CHECK(others > 10);
}

// On one host no rate between hosts counts.
void ranks_of_one_host_doubt_nothing() {
    const Places one = places_on({0, 0, 0, 0});
    const Problem problem = problem_of(Collective::all_reduce, one, mebibyte, "none");
    const Tables stated = with_rate(0.1, RateSource::stated);
    CHECK(!is_rate_in_doubt(problem, stated.speeds));
    const auto plan = choose(problem, stated);
    CHECK_OK(plan);
    CHECK_EQ(plan->cost.slow_network_ns, plan->cost.time_ns);
    CHECK_EQ(plan->cost.fast_network_ns, plan->cost.time_ns);
}

// Whether a reason of time or of caution is given follows from the times.
void the_explanation_is_the_choices() {
    uint32_t cautious = 0;
    for_problems([&](const Problem &problem, double rate) {
        for (const RateSource source :
             {RateSource::assumed, RateSource::stated, RateSource::measured}) {
            const Tables with = with_rate(rate, source);
            const auto explanation = explain(problem, with);
            CHECK_OK(explanation);
            const double own = explanation->chosen().cost.time_ns;
            const auto all = find_candidates(explanation->planned, with);
            CHECK_OK(all);
            const std::string reason = explanation->reason();
            const bool is_cautious =
                reason.find("but if the rate between hosts, which ") != std::string::npos;
            if (own > equal_time * fastest(*all)) CHECK(is_cautious);
            if (source == RateSource::measured || own == fastest(*all)) CHECK(!is_cautious);
            if (!is_cautious) continue;
            cautious++;
            CHECK_EQ(reason.find("which was stated and not measured") != std::string::npos,
                     source == RateSource::stated);
            CHECK_EQ(reason.find("which is unknown") != std::string::npos,
                     source == RateSource::assumed);
        }
    });
    CHECK(cautious > 10);
}

// With an error budget the algorithm is the one that the codec has where it is named, of those that
// keep the budget.
void a_budget_chooses_as_cautiously() {
    uint32_t compared = 0;
    for (const double rate : {0.03, 0.12, 0.5, 1.2, 5.0})
        for (uint64_t bytes = 64 << 10; bytes <= 64 * mebibyte; bytes *= 4) {
            const Tables stated = with_rate(rate, RateSource::stated);
            const auto budget = choose(
                problem_of(Collective::all_reduce, two_by_two, bytes, "auto:nmse=1e-1"), stated);
            CHECK_OK(budget);
            if (budget->codec.is_lossless()) continue;
            Problem named = problem_of(Collective::all_reduce, two_by_two, bytes, "none");
            named.codec = budget->codec;
            named.codec.min_bytes = 0;
            const auto same = choose(named, stated);
            CHECK_OK(same);
            CHECK(same->algorithm == budget->algorithm);
            compared++;
        }
    CHECK(compared > 10);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(doubted_times_are_those_at_the_other_rates),
        QTEST(a_doubtful_rate_gets_the_least_regret),
        QTEST(ranks_of_one_host_doubt_nothing),
        QTEST(the_explanation_is_the_choices),
        QTEST(a_budget_chooses_as_cautiously),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
