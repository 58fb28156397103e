// Examines the candidates of a call, and chooses among them.
#include "plan/planner.hpp"

#include "codec/chunk.hpp"
#include "plan/budget_choice.hpp"

#include <algorithm>
#include <tuple>

namespace qccl {

namespace {

// A call that is smaller than min= is lossless. The plan's codec has neither min= nor guard,
// because they do not matter to other ranks.
Codec codec_for(const Problem &problem) {
    if (problem.codec.min_bytes && vector_bytes(problem) < *problem.codec.min_bytes) return {};
    Codec codec = problem.codec;
    codec.min_bytes.reset();
    codec.guard = 0;
    return codec;
}

// On one host a codec is used as asked for: memory is hardly ever the bottleneck there, so the
// caller wants the codec for what it does.
bool may_go_losslessly(const Problem &problem, const Plan &plan) {
    return !plan.codec.is_lossless() && !problem.codec.min_bytes && problem.has_hosts();
}

bool is_said_otherwise(const Algorithm &algorithm, const Problem &problem,
                       const PlannerInputs &inputs) {
    if (!inputs.whole_up_to_bytes || problem.ranks < 2) return false;
    return algorithm.is_one_exchange() != (vector_bytes(problem) <= *inputs.whole_up_to_bytes);
}

bool rounds_between_ranks(const Algorithm &algorithm, const Problem &problem) {
    constexpr size_t narrow_bytes = 2;
    const TypeInfo &type = info(problem.type);
    return reduces(problem.collective) && problem.codec.is_lossless() && type.is_float &&
           type.bytes <= narrow_bytes && algorithm.sums_on_the_way() && problem.ranks > 2;
}

Candidate examine(const Algorithm &algorithm, const Problem &problem, const PlannerInputs &inputs,
                  const Result<StepCounts> &counted) {
    Candidate candidate{.plan = {.algorithm = algorithm, .codec = problem.codec}, .refusal = {}};
    if (!counted) {
        candidate.refusal = counted.error().text;
        return candidate;
    }
    const Codec inner = inner_codec(algorithm, problem.codec);
    candidate.plan.inner_codec = inner;
    const auto chunking_by = [&](const ShapeLimits &limits) {
        return cut(layout_of(problem, counted->chunks, inner), counted->outbox,
                   encoding_of(problem.codec, inner, problem.type), limits);
    };
    const auto geometry = chunking_by(inputs.limits);
    if (!geometry) {
        candidate.refusal = geometry.error().text;
        return candidate;
    }
    candidate.plan.geometry = *geometry;
    const auto usual = chunking_by(inputs.usual_limits);
    Cost &cost = candidate.plan.cost;
    cost = qccl::cost(algorithm, problem, *counted, usual ? *usual : *geometry, inputs.speeds);
    if (inputs.corrections)
        cost.correction = inputs.corrections->of({.collective = problem.collective,
                                                  .algorithm = algorithm,
                                                  .width = width_of(problem.codec)},
                                                 vector_bytes(problem));
    for (double Cost::*time : {&Cost::time_ns, &Cost::slow_network_ns, &Cost::fast_network_ns})
        cost.*time *= cost.correction;
    if (rounds_between_ranks(algorithm, problem))
        candidate.refusal = "would round the sum at every rank";
    if (algorithm.row().inner_noise && !problem.has_hosts())
        candidate.refusal = "all ranks are on one host";
    if (is_said_otherwise(algorithm, problem, inputs))
        candidate.refusal = "QCCL_ONESHOT_MAX says otherwise for this size";
    return candidate;
}

} // namespace

// Streams that share a host's link lose some of its rate to each other, and more of it near their
// ends: a ring of four hosts takes 3 % less than direct for 64 MiB at 1 Gbit/s, 30 % for 1 MiB.
bool is_preferred(const Cost &cost, const Cost &than) {
    return std::tie(cost.noise, cost.far_peers, cost.time_ns) <
           std::tie(than.noise, than.far_peers, than.time_ns);
}

static double ratio(double time, double least) { return least > 0 ? time / least : 1; }

MinimaxRegret::MinimaxRegret(const std::vector<const Candidate *> &candidates) {
    // How much longer than the fastest, at the assumed rate, a cautious candidate may take.
    constexpr double most_caution = 1.25;
    for (const Candidate *const candidate : candidates) {
        const Cost &cost = candidate->plan.cost;
        least_ns_ = std::min(least_ns_, cost.time_ns);
        least_slow_ns_ = std::min(least_slow_ns_, cost.slow_network_ns);
        least_fast_ns_ = std::min(least_fast_ns_, cost.fast_network_ns);
    }
    most_ns_ = least_ns_ * most_caution;
    for (const Candidate *const candidate : candidates) {
        const Cost &cost = candidate->plan.cost;
        if (cost.time_ns <= most_ns_) least_regret_ = std::min(least_regret_, regret(cost));
    }
    for (const Candidate *const candidate : candidates) {
        const Cost &cost = candidate->plan.cost;
        if (is_cautious(cost)) least_cautious_ns_ = std::min(least_cautious_ns_, cost.time_ns);
    }
}

double MinimaxRegret::regret(const Cost &cost) const {
    return std::max({ratio(cost.time_ns, least_ns_), ratio(cost.slow_network_ns, least_slow_ns_),
                     ratio(cost.fast_network_ns, least_fast_ns_)});
}

bool MinimaxRegret::is_cautious(const Cost &cost) const {
    return cost.time_ns <= most_ns_ && regret(cost) <= least_regret_ * equal_time;
}

bool MinimaxRegret::is_among_best(const Cost &cost) const {
    return is_cautious(cost) && cost.time_ns <= least_cautious_ns_ * equal_time;
}

const Candidate *best_of(const std::vector<const Candidate *> &candidates) {
    const MinimaxRegret regrets(candidates);
    const Candidate *best = nullptr;
    for (const Candidate *const candidate : candidates) {
        const Cost &cost = candidate->plan.cost;
        if (!regrets.is_among_best(cost)) continue;
        if (!best || is_preferred(cost, best->plan.cost)) best = candidate;
    }
    return best;
}

bool can_run(const Candidate &candidate) { return candidate.plan.geometry.segment != 0; }

double predicted_nmse(const Plan &plan, DataType type) {
    const Cost &cost = plan.cost;
    return loss_of(plan.codec, type, cost.noise, cost.summands)
        .followed_by(loss_of(plan.inner_codec, type, cost.inner_noise, cost.summands))
        .nmse();
}

PlannerInputs reproducible_inputs(const ShapeLimits &limits, const ShapeLimits &usual_limits) {
    return {.speeds = {}, .limits = limits, .usual_limits = usual_limits, .is_reproducible = true};
}

const RankTopology *planned_places(const RankTopology *places, const PlannerInputs &inputs) {
    return inputs.is_reproducible ? nullptr : places;
}

Done check_reproducible(const Algorithm &algorithm, bool is_reproducible) {
    const bool sums_by_hosts = algorithm && algorithm.row().inner_noise;
    if (!is_reproducible || !sums_by_hosts) return {};
    return Error::make(Code::invalid_argument,
                       "%s sums in an order that depends on where the ranks are, which a "
                       "reproducible communicator rules out",
                       spec(algorithm).c_str());
}

const Result<StepCounts> &counted(const Algorithm &algorithm, const Problem &problem,
                                  StepCountCache &counts, const SharedLinks &links) {
    CountedSteps steps{.collective = problem.collective,
                       .root = problem.root,
                       .is_lossless = problem.codec.is_lossless(),
                       .algorithm = spec(algorithm)};
    const auto known = counts.find(steps);
    if (known != counts.end()) return known->second;
    return counts.emplace(std::move(steps), step_counts(algorithm, problem, links)).first->second;
}

static void examine_codecs(const Algorithm &algorithm, const std::vector<Problem> &problems,
                           const PlannerInputs &inputs, StepCountCache &counts,
                           std::vector<std::vector<Candidate>> &candidates) {
    for (size_t i = 0; i < problems.size(); i++)
        candidates[i].push_back(examine(algorithm, problems[i], inputs,
                                        counted(algorithm, problems[i], counts, inputs.links)));
}

Result<std::vector<std::vector<Candidate>>>
find_candidates(const Problem &asked, std::span<const Codec> codecs, const PlannerInputs &inputs,
                const Algorithm &forced, StepCountCache *kept) {
    if (asked.ranks == 0 || asked.root >= asked.ranks)
        return Error::make(Code::invalid_argument, "root %u is not one of %u ranks", asked.root,
                           asked.ranks);
    QCCL_TRY(check_reproducible(forced, inputs.is_reproducible));
    std::vector<Problem> problems(codecs.size(), asked);
    for (size_t i = 0; i < codecs.size(); i++) {
        problems[i].codec = codecs[i];
        problems[i].codec = codec_for(problems[i]);
        problems[i].places = planned_places(asked.places, inputs);
    }
    std::vector<std::vector<Candidate>> candidates(codecs.size());
    StepCountCache own;
    StepCountCache &counts = kept ? *kept : own;
    const auto known =
        algorithms_for({.size = asked.ranks, .places = planned_places(asked.places, inputs)});
    for (const Algorithm &algorithm : known)
        if (algorithm.has(asked.collective))
            examine_codecs(algorithm, problems, inputs, counts, candidates);
    const bool is_extra = forced && std::find(known.begin(), known.end(), forced) == known.end();
    if (is_extra && forced.has(asked.collective))
        examine_codecs(forced, problems, inputs, counts, candidates);
    return candidates;
}

Result<std::vector<Candidate>> find_candidates(const Problem &problem, const PlannerInputs &inputs,
                                               const Algorithm &forced, StepCountCache *counts) {
    QCCL_TRY(auto candidates,
             find_candidates(problem, {&problem.codec, 1}, inputs, forced, counts));
    return std::move(candidates[0]);
}

static Result<Plan> choose_algorithm(const Problem &problem, const PlannerInputs &inputs,
                                     const Algorithm &forced, StepCountCache *counts) {
    QCCL_TRY(const auto candidates, find_candidates(problem, inputs, forced, counts));
    if (forced) {
        for (const Candidate &candidate : candidates) {
            if (candidate.plan.algorithm != forced) continue;
            if (can_run(candidate)) return candidate.plan;
            return Error::make(Code::invalid_argument, "%s: %s", spec(forced).c_str(),
                               candidate.refusal.c_str());
        }
        return Error::make(Code::invalid_argument, "there is no %s by %s", name(problem.collective),
                           spec(forced).c_str());
    }
    const Candidate *const best = best_of(those_that(
        candidates, [](const Candidate &candidate) { return candidate.refusal.empty(); }));
    if (best) return best->plan;
    return Error::make(Code::invalid_argument, "no algorithm for %s: %s", name(problem.collective),
                       candidates.empty() ? "there is none" : candidates.front().refusal.c_str());
}

Result<Plan> choose(const Problem &asked, const PlannerInputs &inputs, const Algorithm &forced,
                    StepCountCache *counts) {
    Problem problem = asked;
    problem.places = planned_places(asked.places, inputs);
    if (problem.codec.is_auto()) {
        QCCL_TRY(const BudgetChoice choice, choose_within(problem, inputs, forced, counts));
        return choice.plan;
    }
    QCCL_TRY(const Plan plan, choose_algorithm(problem, inputs, forced, counts));
    if (!may_go_losslessly(problem, plan)) return plan;
    const auto lossless = choose_algorithm(with_codec(problem, {}), inputs, forced, counts);
    if (lossless && !inputs.speeds.is_far_rate_known()) return lossless;
    if (!lossless || lossless->cost.time_ns > plan.cost.time_ns * least_gain) return plan;
    return lossless;
}

} // namespace qccl
