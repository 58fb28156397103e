// Tests lib/plan: a rate between hosts that was not measured may be wrong, so the choice loses
// little at any possible rate. If the rate was measured, the choice is the fastest.
#include "tests/kit/plan_kit.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <vector>

using namespace qccl;
using namespace qtest;

namespace {

const RankTopology two_by_two = places_on({0, 0, 1, 1});
const RankTopology four = places_on({0, 1, 2, 3});

PlannerInputs with_rate(double bytes_per_ns, RateSource source) {
    PlannerInputs with = inputs;
    with.speeds.remote_bytes_per_ns = bytes_per_ns;
    with.speeds.remote_rate_source = source;
    return with;
}

Problem problem_of(Collective collective, const RankTopology &places, uint64_t bytes,
                   const char *name) {
    Problem problem = all_reduce(bytes / 4, places.ranks(), DataType::float32, name);
    problem.collective = collective;
    if (has_part_per_rank(collective)) problem.count /= places.ranks();
    problem.places = &places;
    return problem;
}

// Calls `check` for each problem of a table with each rate.
template <class Check> void for_problems(const Check &check) {
    for (const RankTopology *const places : {&two_by_two, &four})
        for (const Collective collective : value_collectives)
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

// Computes the regret without MinimaxRegret.
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
        // No candidate that is as cautious is clearly faster.
        for (size_t i = 0; i < all.size(); i++)
            if (all[i].refusal.empty() && regret_of(problem, rate, i) <= own)
                CHECK(plan->cost.time_ns <= all[i].plan.cost.time_ns * equal_time);
    });
    CHECK(others > 10);
}

// On one host the rate between hosts does not matter.
void ranks_of_one_host_doubt_nothing() {
    const RankTopology one = places_on({0, 0, 0, 0});
    const Problem problem = problem_of(Collective::all_reduce, one, mebibyte, "none");
    const PlannerInputs stated = with_rate(0.1, RateSource::stated);
    CHECK(!is_rate_in_doubt(problem, stated.speeds));
    const auto plan = choose(problem, stated);
    CHECK_OK(plan);
    CHECK_EQ(plan->cost.slow_network_ns, plan->cost.time_ns);
    CHECK_EQ(plan->cost.fast_network_ns, plan->cost.time_ns);
}

// The times determine whether the reason given is speed or caution.
void the_explanation_is_the_choices() {
    uint32_t cautious = 0;
    for_problems([&](const Problem &problem, double rate) {
        for (const RateSource source :
             {RateSource::assumed, RateSource::stated, RateSource::measured}) {
            const PlannerInputs with = with_rate(rate, source);
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

// The choice has the least regret among the candidates that keep the budget.
void a_budget_chooses_as_cautiously() {
    uint32_t narrower = 0, cautious = 0;
    for (const double rate : {0.03, 0.12, 0.5, 1.2, 5.0})
        for (const char *const budget : {"auto:nmse=1e-1", "auto:nmse=1e-2", "auto:nmse=4e-4"})
            for (uint64_t bytes = 64 << 10; bytes <= 64 * mebibyte; bytes *= 4) {
                const Problem asked = problem_of(Collective::all_reduce, two_by_two, bytes, budget);
                const auto plan = choose(asked, with_rate(rate, RateSource::stated));
                const auto trusting = choose(asked, with_rate(rate, RateSource::measured));
                CHECK_OK(plan);
                CHECK_OK(trusting);
                if (plan->codec.is_lossless()) continue;
                cautious += plan->algorithm != trusting->algorithm;
                const Problem named = with_codec(asked, plan->codec);
                std::array<std::vector<Candidate>, 3> at; // at the possible rates
                std::array<double, 3> least;
                const auto keeps = [&](const Candidate &each) {
                    const auto nmse = nmse_bound(each.plan);
                    return each.refusal.empty() && nmse && *nmse <= asked.codec.budget.nmse;
                };
                for (size_t i = 0; i < at.size(); i++) {
                    at[i] = candidates_at(named, rate * std::array{0.25, 1.0, 4.0}[i]);
                    least[i] = std::numeric_limits<double>::infinity();
                    for (const Candidate &each : at[i])
                        if (keeps(each)) least[i] = std::min(least[i], each.plan.cost.time_ns);
                }
                double least_regret = std::numeric_limits<double>::infinity(), own = 0;
                for (size_t number = 0; number < at[1].size(); number++) {
                    const Candidate &each = at[1][number];
                    narrower += each.refusal.empty() && !keeps(each);
                    if (!keeps(each) || each.plan.cost.time_ns > 1.25 * least[1]) continue;
                    double regret = 0;
                    for (size_t i = 0; i < at.size(); i++)
                        regret = std::max(regret, at[i][number].plan.cost.time_ns / least[i]);
                    least_regret = std::min(least_regret, regret);
                    if (each.plan.algorithm == plan->algorithm) own = regret;
                }
                CHECK(own >= 1 && own <= least_regret * equal_time);
            }
    CHECK(narrower > 10);
    CHECK(cautious > 0);
}

// Corrections from measured calls apply to the times at every rate.
void corrections_are_of_all_times() {
    const Problem problem = problem_of(Collective::all_reduce, four, mebibyte, "none");
    PlannerInputs with = with_rate(0.12, RateSource::stated);
    const auto counted = find_candidates(problem, with);
    auto corrections = std::make_shared<Corrections>();
    for (const Algorithm &algorithm : algorithms())
        corrections->set({.algorithm = algorithm}, 7, algorithm == algorithms()[0] ? 2 : 0.5);
    CHECK_EQ(Corrections::sizes[7], uint64_t{mebibyte});
    with.corrections = corrections;
    const auto corrected = find_candidates(problem, with);
    CHECK_OK(counted);
    CHECK_OK(corrected);
    for (size_t i = 0; i < counted->size(); i++) {
        const Cost &before = (*counted)[i].plan.cost, &after = (*corrected)[i].plan.cost;
        const double factor = i == 0 ? 2 : 0.5;
        CHECK_EQ(after.time_ns, factor * before.time_ns);
        CHECK_EQ(after.slow_network_ns, factor * before.slow_network_ns);
        CHECK_EQ(after.fast_network_ns, factor * before.fast_network_ns);
    }
}

// Candidates that break the budget are not chosen from, so they have no regret.
void regret_is_of_those_that_are_chosen_from() {
    const Problem problem =
        problem_of(Collective::all_reduce, two_by_two, mebibyte, "auto:nmse=4e-4");
    const auto explanation = explain(problem, with_rate(0.12, RateSource::stated));
    CHECK_OK(explanation);
    uint32_t with = 0, without = 0;
    for (const ExplainedCandidate &each : explanation->candidates) {
        const auto nmse = nmse_bound(each.plan);
        const bool keeps = nmse && *nmse <= problem.codec.budget.nmse;
        if (each.status == CandidateStatus::lost) CHECK_EQ(each.regret.has_value(), keeps);
        if (each.regret) CHECK(*each.regret >= 1);
        (each.regret ? with : without)++;
    }
    CHECK(with > 1 && without > 1);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(doubted_times_are_those_at_the_other_rates),
        QTEST(a_doubtful_rate_gets_the_least_regret),
        QTEST(ranks_of_one_host_doubt_nothing),
        QTEST(the_explanation_is_the_choices),
        QTEST(a_budget_chooses_as_cautiously),
        QTEST(corrections_are_of_all_times),
        QTEST(regret_is_of_those_that_are_chosen_from),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
