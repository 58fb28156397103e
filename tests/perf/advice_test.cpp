// Tests perf/info/advice: the advice names the fastest codec that keeps an error budget on the
// given data, judged by measured errors, or says why there is no such codec.
#include "tests/kit/plan_kit.hpp"

#include "perf/info/advice.hpp"

#include <algorithm>

using namespace qccl;
using namespace qccl::perf;
using namespace qtest;

namespace {

constexpr uint32_t ranks = 4;
constexpr uint64_t count = 1 << 16;

const RankTopology &apart() {
    static const RankTopology places({{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 3, 0}});
    return places;
}

Problem problem_of(const RankTopology *places = &apart()) {
    Problem problem = all_reduce(count, ranks);
    problem.places = places;
    return problem;
}

// Returns the planner inputs with links of `gigabits` Gbit/s; sending over them costs no processor
// time.
PlannerInputs at(double gigabits) {
    PlannerInputs made = inputs;
    made.speeds.remote_bytes_per_ns = gigabits / 8;
    made.speeds.remote.alone.byte_ns = made.speeds.remote.shared.byte_ns = 0;
    return made;
}

struct Asked {
    std::unique_ptr<Source> data = make_gaussian(5);
    ErrorMeter meter;

    explicit Asked(const RankTopology *places = &apart()) : meter(*data, problem_of(places)) {}
    Advice of(const PlannerInputs &network) {
        auto advice = try_codecs(meter, network);
        CHECK_OK(advice);
        return std::move(*advice);
    }
};

using Outcome = BudgetAdvice::Outcome;

} // namespace

static void errors_are_measured() {
    Asked asked;
    const Advice advice = asked.of(at(1));
    CHECK(advice.trials.size() > 5);
    for (const CodecTrial &trial : advice.trials) {
        const auto nmse = rehearsed_nmse({.algorithm = trial.plan.algorithm,
                                          .codec = trial.plan.codec,
                                          .inner_codec = trial.plan.inner_codec,
                                          .count = count,
                                          .ranks = ranks,
                                          .places = &apart()},
                                         *asked.data);
        CHECK_OK(nmse);
        CHECK(**nmse == trial.nmse && trial.nmse > 0 && trial.nmse < 1);
        CHECK(trial.plan.codec == trial.codec);
    }
    CHECK(std::ranges::is_sorted(advice.trials, {}, &CodecTrial::bits));
}

// Compares the advice with a search over all trials that keep the budget.
static void the_fastest_that_keeps_the_budget_is_advised() {
    Asked asked;
    const Advice advice = asked.of(at(1));
    for (const double nmse : {1e-1, 1e-2, 1e-3, 1e-4}) {
        const BudgetAdvice found = advise(advice, nmse);
        CHECK(found.outcome == Outcome::codec && found.nmse == nmse);
        CHECK(found.trial->nmse <= nmse);
        for (const CodecTrial &other : advice.trials)
            if (other.nmse <= nmse) {
                const double factor = found.trial->plan.cost.time_ns / other.plan.cost.time_ns;
                CHECK(factor <= equal_time);
                CHECK(factor > 1 || other.nmse >= found.trial->nmse || factor < 1 / equal_time ||
                      other.plan.cost.time_ns > found.trial->plan.cost.time_ns);
            }
        CHECK(gain(advice, *found.trial) >= least_gain);
        CHECK(sentence_of(advice, found).find(" use " + spec(found.trial->codec) + ":") !=
              std::string::npos);
    }
    CHECK(advise(advice, 1e-1).trial->bits < advise(advice, 1e-4).trial->bits);
}

static void a_budget_that_no_codec_keeps_is_missed() {
    Asked asked;
    const Advice advice = asked.of(at(1));
    const BudgetAdvice missed = advise(advice, 1e-12);
    CHECK(missed.outcome == Outcome::missed);
    for (const CodecTrial &trial : advice.trials) CHECK(trial.nmse >= missed.trial->nmse);
}

static void no_codec_is_advised_where_none_pays() {
    Asked asked;
    const Advice fast = asked.of(at(4000)), slow = asked.of(at(1));
    const BudgetAdvice advised = advise(fast, 1e-3);
    CHECK(advised.outcome == Outcome::no_gain);
    CHECK(gain(fast, *advised.trial) < least_gain);
    CHECK(advise(slow, 1e-3).outcome == Outcome::codec);
    CHECK(advise(Asked(nullptr).of(inputs), 1e-3).outcome == Outcome::no_link);
    CHECK(advise(Asked(nullptr).of(inputs), 1e-12).outcome == Outcome::missed);
    PlannerInputs unknown = at(1);
    unknown.speeds.remote_rate_source = RateSource::assumed;
    CHECK(advise(asked.of(unknown), 1e-3).outcome == Outcome::no_link);
}

static void data_without_an_error_are_refused() {
    class Zeros final : public Source {
        void read(uint32_t, DataType type, uint64_t, size_t n, std::byte *dst) const override {
            std::fill_n(dst, n * type_bytes(type), std::byte{});
        }
        uint32_t exact_ranks(DataType) const override { return 1; }
    };
    const Zeros zeros;
    ErrorMeter meter(zeros, problem_of());
    const auto advice = try_codecs(meter, at(1));
    CHECK(!advice && advice.error().code == Code::invalid_argument);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(errors_are_measured),
        QTEST(the_fastest_that_keeps_the_budget_is_advised),
        QTEST(a_budget_that_no_codec_keeps_is_missed),
        QTEST(no_codec_is_advised_where_none_pays),
        QTEST(data_without_an_error_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
