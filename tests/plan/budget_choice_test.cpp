// Tests choose_within() of lib/plan/planner: a call with a budget gets the fastest codec and
// algorithm that keep it, as found here by trying all of them, and a call whose budget no codec
// keeps says so.
#include "tests/kit/plan_kit.hpp"
#include "tests/kit/sample.hpp"

#include "codec/error_model.hpp"
#include "plan/planner.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

using namespace qccl;
using namespace qtest;

namespace {

constexpr double errors[] = {0.9, 1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 1e-6};
constexpr uint32_t teams[] = {1, 2, 3, 4, 8, 17, 64};

RankTopology apart(uint32_t ranks) {
    std::vector<uint32_t> hosts(ranks);
    for (uint32_t rank = 0; rank < ranks; rank++) hosts[rank] = rank;
    return places_on(hosts);
}

Codec with_error(double error, bool is_forced) {
    char text[64];
    std::snprintf(text, sizeof text, "auto:nmse=%g%s", error, is_forced ? ",min=0" : "");
    return codec(text);
}

BudgetChoice choice_of(const Problem &problem, const Algorithm &forced = {},
                       const PlannerInputs &with = inputs) {
    const auto choice = choose_within(problem, with, forced);
    CHECK_OK(choice);
    const auto plan = choose(problem, with, forced);
    CHECK_OK(plan);
    CHECK(plan->algorithm == choice->plan.algorithm && plan->codec == choice->plan.codec);
    CHECK(!plan->codec.is_auto() && !plan->codec.min_bytes);
    return *choice;
}

// Returns the time of the fastest plan of all codecs and algorithms that keeps the error; nothing:
// none does.
std::optional<double> fastest_ns(const Problem &problem, double error, const Algorithm &forced) {
    std::optional<double> fastest;
    for (const BoundedCodec &row : bounded_codecs()) {
        Problem named = problem;
        named.codec = row.codec;
        const auto candidates = find_candidates(named, inputs, forced);
        CHECK_OK(candidates);
        for (const Candidate &candidate : *candidates) {
            const Plan &plan = candidate.plan;
            if (forced ? plan.algorithm != forced || plan.geometry.segment == 0
                       : !candidate.refusal.empty())
                continue;
            if (plan.cost.noise.first > row.most_encodes ||
                row.nmse * plan.cost.noise.first > error)
                continue;
            if (!fastest || plan.cost.time_ns < *fastest) fastest = plan.cost.time_ns;
        }
    }
    return fastest;
}

// Checks every error: the chosen plan keeps it and is as fast as any plan that does.
void check_errors(Problem problem, const Algorithm &forced) {
    double before_ns = 0;
    for (const double error : errors) {
        problem.codec = with_error(error, true);
        const BudgetChoice choice = choice_of(problem, forced);
        const auto fastest = fastest_ns(problem, error, forced);
        const bool is_missed = choice.outcome == BudgetChoice::Outcome::missed;
        CHECK_EQ(is_missed, !fastest.has_value());
        CHECK_EQ(is_missed, choice.plan.codec.is_lossless());
        CHECK_EQ(is_missed, !choice.plan.notice.empty());
        if (is_missed) continue;
        // The choice may take any algorithm of a codec, and then any codec, that is as fast within
        // equal_time: hence the factor twice.
        CHECK(choice.plan.cost.time_ns <= *fastest * equal_time * equal_time);
        const auto nmse = nmse_bound(choice.plan);
        CHECK(nmse && *nmse <= error);
        // A smaller error takes no less time.
        CHECK(before_ns <= choice.plan.cost.time_ns * equal_time * equal_time);
        before_ns = choice.plan.cost.time_ns;
    }
}

Problem between_hosts(const char *with, const RankTopology &places) {
    Problem problem = all_reduce(mebibyte, 4, DataType::float32, with);
    problem.places = &places;
    return problem;
}

} // namespace

// Calls visit(problem, forced) for every number of ranks, collective and count: on one host,
// between hosts, and with every algorithm named.
template <class Visitor> static void each_choice(Visitor visit) {
    for (const uint32_t ranks : teams) {
        const RankTopology places = apart(ranks);
        for (const Collective collective : value_collectives)
            for (const uint64_t count : {uint64_t{5}, uint64_t{4096}, uint64_t{1} << 20}) {
                Problem problem = all_reduce(count, ranks);
                problem.collective = collective;
                visit(problem, Algorithm());
                problem.places = &places;
                visit(problem, Algorithm());
                for (const Algorithm &algorithm : algorithms())
                    if (algorithm.has(collective) && ranks <= 8) visit(problem, algorithm);
            }
    }
}

static void the_fastest_that_keeps_the_error_is_chosen() {
    using Sample = PairSample<4>;
    Sample sample;
    each_choice([&](const Problem &problem, const Algorithm &forced) {
        const std::string way = forced           ? spec(forced)
                                : problem.places ? "between hosts"
                                                 : "on one host";
        sample.offer(false, {problem.ranks, static_cast<uint64_t>(problem.collective),
                             problem.count, Sample::value(way)});
    });
    ChosenCases cases = sample.choose();
    each_choice([&](const Problem &problem, const Algorithm &forced) {
        if (cases.takes()) check_errors(problem, forced);
    });
    std::printf("%llu of %llu cases\n", static_cast<unsigned long long>(cases.taken),
                static_cast<unsigned long long>(cases.cases));
}

// On a slow link the bits decide the time, so the larger the error, the fewer bits the codec takes.
static void slow_links_get_few_bits() {
    const RankTopology places = apart(4);
    double before = 0;
    std::set<std::string> chosen_codecs;
    for (const double error : {1e-1, 1e-2, 1e-3, 1e-4, 1e-5}) {
        Problem problem = between_hosts("none", places);
        problem.codec = with_error(error, false);
        const BudgetChoice choice = choice_of(problem);
        CHECK(choice.outcome == BudgetChoice::Outcome::codec);
        const double bits = bits_per_value(choice.plan.codec, problem.type);
        CHECK(bits > before);
        before = bits;
        chosen_codecs.insert(spec(choice.plan.codec));
        // The choice is the same for any cut of the call.
        PlannerInputs small = inputs;
        small.limits.segment_bytes /= 4;
        CHECK(choice_of(problem, {}, small).plan.codec == choice.plan.codec);
    }
    CHECK_EQ(chosen_codecs.size(), size_t{5});
}

// Lossless calls keep every budget. On one host, and on a fast link between hosts, codecs seldom
// pay, so such calls stay lossless.
static void nothing_is_lost_for_nothing() {
    CHECK(choice_of(all_reduce(1 << 20, 4, DataType::float32, "auto:nmse=1e-2")).outcome ==
          BudgetChoice::Outcome::no_link);
    CHECK(!chosen(all_reduce(1 << 20, 4, DataType::float32, "auto:nmse=1e-2,min=0"))
               .codec.is_lossless());
    const RankTopology places = apart(4);
    const Problem problem = between_hosts("auto:nmse=1e-2", places);
    CHECK(choice_of(problem).outcome == BudgetChoice::Outcome::codec);
    PlannerInputs fast = inputs;
    fast.speeds.remote_bytes_per_ns = 1000;
    fast.speeds.codec_rates = CodecRates::of_tier("scalar");
    CHECK(choice_of(problem, {}, fast).outcome == BudgetChoice::Outcome::no_gain);
    Problem lossless = problem;
    lossless.codec = {};
    const Plan plan = choice_of(problem, {}, fast).plan;
    const auto same = choose(lossless, fast);
    CHECK_OK(same);
    CHECK(plan.algorithm == same->algorithm && plan.cost.time_ns == same->cost.time_ns);
    CHECK(plan.notice.empty());
}

// A reproducible choice depends on the call alone: it is the same with and without hosts and links.
static void places_do_not_count_where_results_are_reproducible() {
    const RankTopology places = apart(4);
    PlannerInputs same = reproducible_inputs(inputs.limits, inputs.usual_limits);
    for (const char *with : {"auto:nmse=1e-2", "auto:nmse=1e-2,min=0", "auto:bits=4"}) {
        const Problem remote = between_hosts(with, places);
        Problem local = remote;
        local.places = nullptr;
        const Plan plan = choice_of(remote, {}, same).plan, other = choice_of(local, {}, same).plan;
        CHECK(plan.codec == other.codec && plan.algorithm == other.algorithm);
        CHECK_EQ(plan.codec.is_lossless(), local.codec.budget.bits == 0 && !local.codec.min_bytes);
    }
}

static void small_calls_go_lossless_by_min() {
    const RankTopology places = apart(4);
    const auto outcome = [&](const char *with) {
        return choice_of(between_hosts(with, places)).outcome; // a call of 4 MiB
    };
    CHECK(outcome("auto:nmse=1e-2,min=4M") == BudgetChoice::Outcome::codec);
    CHECK(outcome("auto:nmse=1e-2,min=5M") == BudgetChoice::Outcome::too_small);
    CHECK(outcome("auto:bits=4,min=5M") == BudgetChoice::Outcome::too_small);
}

static void bits_get_the_most_accurate_codec() {
    const RankTopology places = apart(4);
    const auto codec_of = [&](const std::string &with) {
        const BudgetChoice choice = choice_of(between_hosts(with.c_str(), places));
        return choice.outcome == BudgetChoice::Outcome::codec ? spec(choice.plan.codec) : "none";
    };
    CHECK_EQ(codec_of("auto:bits=2.499"), "none");
    CHECK_EQ(codec_of("auto:bits=2.5"), "int2");
    CHECK_EQ(codec_of("auto:bits=4"), "int3:block=16");
    CHECK_EQ(codec_of("auto:bits=4.5"), "int4");
    CHECK_EQ(codec_of("auto:bits=5"), "nvfp4");
    CHECK_EQ(codec_of("auto:bits=5,from=int"), "int4:block=16");
    CHECK_EQ(codec_of("auto:bits=8"), "minmax:bits=7,bucket=64");
    CHECK_EQ(codec_of("auto:bits=8,from=int+bf16"), "int6:block=16");
    CHECK_EQ(codec_of("auto:bits=10.5"), "int10");
    CHECK_EQ(codec_of("auto:bits=12.999"), "int12");
    CHECK_EQ(codec_of("auto:bits=31.999"), "int12:block=8");
    CHECK_EQ(codec_of("auto:bits=32"), "none");
    // On one host the codec is always used, like a codec that the caller names.
    CHECK_EQ(spec(chosen(all_reduce(16, 4, DataType::float32, "auto:bits=4")).codec),
             "int3:block=16");
    double least = 1;
    for (uint32_t thousandths = 2500; thousandths < 32000; thousandths += 500) {
        const std::string name = codec_of("auto:bits=" + std::to_string(thousandths / 1000) + "." +
                                          std::to_string(thousandths % 1000));
        const double nmse = bound_of(codec(name.c_str()))->nmse;
        CHECK(nmse <= least);
        CHECK(bits_per_value(codec(name.c_str()), DataType::float32) <= thousandths / 1000.0);
        least = nmse;
    }
}

static void both_are_kept() {
    const RankTopology places = apart(4);
    const auto of = [&](const char *with) { return choice_of(between_hosts(with, places)); };
    const BudgetChoice both = of("auto:nmse=1e-3,bits=9");
    CHECK(both.outcome == BudgetChoice::Outcome::codec && *nmse_bound(both.plan) <= 1e-3);
    CHECK(bits_per_value(both.plan.codec, DataType::float32) <= 9);
    CHECK(of("auto:nmse=1e-3,bits=5").outcome == BudgetChoice::Outcome::missed);
    CHECK(of("auto:nmse=1e-3,from=bf16").plan.codec == codec("bf16"));
    CHECK(of("auto:nmse=1e-5,from=int").outcome == BudgetChoice::Outcome::codec);
    CHECK(of("auto:nmse=1e-5,from=minmax").outcome == BudgetChoice::Outcome::missed);
}

// What owners keep is no matter of the budget. A rank's own part of an all-gather then has no
// error.
static void owners_keep_what_the_budget_says() {
    for (const char *budget : {"auto:nmse=1e-2,min=0", "auto:bits=4,min=0"})
        for (const Collective collective : {Collective::all_gather, Collective::broadcast}) {
            Problem problem = all_reduce(1 << 20, 4, DataType::float32, budget);
            problem.collective = collective;
            const Plan usual = choice_of(problem).plan;
            problem.codec.owner = OwnerKeeps::exact;
            const Plan exact = choice_of(problem).plan;
            CHECK_EQ(spec(exact.codec),
                     spec(usual.codec) + (spec(usual.codec).find(':') == std::string::npos
                                              ? ":owner=exact"
                                              : ",owner=exact"));
            const double share = collective == Collective::all_gather ? 0.75 : 1;
            CHECK(exact.cost.noise.first == usual.cost.noise.first * share);
        }
}

// A codec must take fewer bits than the type: values of 16 bits gain nothing by a codec of 16.
static void codecs_are_narrower_than_the_type() {
    const RankTopology places = apart(4);
    for (const DataType type : {DataType::float8e4m3, DataType::float16, DataType::bfloat16,
                                DataType::float32, DataType::float64})
        for (const double error : errors) {
            Problem problem = all_reduce(1 << 20, 4, type);
            problem.places = &places;
            problem.codec = with_error(error, true);
            const BudgetChoice choice = choice_of(problem);
            for (const BudgetOption &option : choice.options)
                CHECK(option.bits < 8.0 * static_cast<double>(type_bytes(type)));
        }
}

// Long rings are known to lose more than the number of encodes predicts, so they have no bound.
static void long_chains_have_no_bound() {
    const auto bound_by_ring = [](const char *name, uint32_t ranks) {
        return nmse_bound(chosen(all_reduce(1 << 20, ranks, DataType::float32, name), "ring"));
    };
    CHECK(bound_by_ring("int8", 64) && !bound_by_ring("int8", 65));
    CHECK(bound_by_ring("nvfp4", 16) && !bound_by_ring("nvfp4", 17));
    CHECK(bound_by_ring("bf16", 8) && !bound_by_ring("bf16", 9));
    CHECK(!bound_by_ring("minmax", 2) && !bound_by_ring("fp16", 2));
    CHECK_EQ(*bound_by_ring("none", 2), 0.0);
}

static void what_was_chosen_is_explained() {
    const RankTopology places = apart(4);
    const auto said = [&](const char *with, std::initializer_list<const char *> words) {
        const auto text = explain_in_text(between_hosts(with, places), inputs);
        CHECK_OK(text);
        for (const char *word : words)
            if (text->find(word) == std::string::npos)
                throw Failure{std::string(with) + ": no \"" + word + "\" in\n" + *text};
    };
    said("auto:nmse=1e-2",
         {"with auto:nmse=0.01\n", "\n  travels with int5:block=16 (6 bits a value): the fastest",
          "\n    int4, 4.5 bits a value: NMSE up to 0.029 by oneshot, too much\n",
          "\n    int8, 8.5 bits a value: NMSE at most 0.00", "\n* ", ", at most 0.00"});
    said("auto:nmse=1e-7",
         {"\n  travels with none: no codec keeps that error on 4 ranks: the least is 1.9e-07, of "
          "int12:block=8 by oneshot\n"});
    said("auto:nmse=1e-2,min=1G", {"\n  travels with none: smaller than the codec's 1 GiB\n"});
    said("auto:bits=4.5", {"\n  travels with int4 (4.5 bits a value): the most accurate",
                           "\n    int4, 4.5 bits a value: NMSE of one encode at most 0.029, the "
                           "least\n"});
    said("auto:bits=40", {"\n  travels with none: values as they are take no more than 40 bits\n"});
    said("auto:bits=2", {"\n  travels with none: no codec with a known bound takes so few bits"});
    const auto here =
        explain_in_text(all_reduce(1 << 20, 4, DataType::float32, "auto:nmse=1e-2"), inputs);
    CHECK_OK(here);
    CHECK(here->find("travels with none: between ranks of one host, or reproducible ones") !=
          std::string::npos);
}

// If unencoded values fit the budget, the codecs that are listed still have their bounds.
static void codecs_beside_values_that_fit_have_bounds() {
    const Problem problem = all_reduce(1 << 18, 4, DataType::float32, "auto:bits=32");
    const auto choice = choose_within(problem, inputs, {});
    CHECK_OK(choice);
    CHECK(choice->outcome == BudgetChoice::Outcome::fits && !choice->options.empty());
    for (const BudgetOption &option : choice->options) CHECK(option.nmse && *option.nmse > 0);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(codecs_beside_values_that_fit_have_bounds),
        QTEST(the_fastest_that_keeps_the_error_is_chosen),
        QTEST(slow_links_get_few_bits),
        QTEST(nothing_is_lost_for_nothing),
        QTEST(places_do_not_count_where_results_are_reproducible),
        QTEST(small_calls_go_lossless_by_min),
        QTEST(bits_get_the_most_accurate_codec),
        QTEST(both_are_kept),
        QTEST(owners_keep_what_the_budget_says),
        QTEST(codecs_are_narrower_than_the_type),
        QTEST(long_chains_have_no_bound),
        QTEST(what_was_chosen_is_explained),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
