// Examines the candidates of a call, and chooses among them. A budget is kept by error or by bits:
// every combination of codec and algorithm gets a bound of its error and a predicted time first.
#include "plan/planner.hpp"

#include "codec/chunk.hpp"
#include "codec/error_model.hpp"
#include "codec/shared_scales.hpp"

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace qccl {

// ---- Algorithm and cut

namespace {

// With shared scales, the plan's codec is the one that the integers have.
Codec with_scales_of(const Codec &shared, Codec of_integers) {
    of_integers.shared_bits = shared.shared_bits;
    of_integers.shared_block = shared.shared_block;
    return of_integers;
}

// Returns the codec that a call has instead of `codec` if that does not pay.
Codec with_lossless_integers(const Codec &codec) { return with_scales_of(codec, {}); }

// Returns the codec in which sums of integers lose nothing. Between hosts chunks are packed,
// and blocks then take the bits that their largest sum needs. On one host a small float whose
// fraction holds every sum takes fewer bytes, if there is one.
Codec codec_of_integers(const Problem &problem) {
    const Codec &shared = problem.codec;
    if (shared.id == CodecId::none || problem.has_hosts())
        return with_scales_of(shared, shared.without_use());
    const uint64_t most = most_shared_sum(shared, problem.ranks);
    for (const CodecId cast : {CodecId::fp8e4m3, CodecId::fp16})
        if (most <= uint64_t{2} << info(*row_of(cast).cast).format.fraction_bits)
            return with_scales_of(shared, usual_codec(cast));
    return with_lossless_integers(shared);
}

// A call that is smaller than min= is lossless. The plan's codec has neither min= nor guard,
// because they do not matter to other ranks.
Codec codec_for(const Problem &problem) {
    const Codec &asked = problem.codec;
    if (asked.min_bytes && vector_bytes(problem) < *asked.min_bytes)
        return with_lossless_integers(asked);
    if (asked.shares_scales()) return problem.ranks == 1 ? Codec() : codec_of_integers(problem);
    Codec codec = asked.without_use();
    codec.owner = asked.owner;
    codec.sums_exactly = asked.sums_exactly;
    return codec;
}

// On one host a codec is used as asked for: memory is hardly ever the bottleneck there, so the
// caller wants the codec for what it does.
bool may_go_losslessly(const Problem &problem, const Plan &plan) {
    return !plan.codec.is_lossless() && !problem.codec.min_bytes && problem.has_hosts();
}

} // namespace

double least_gain_of(const Codec &codec) { return codec.loses() ? least_gain : equal_time; }

namespace {

bool is_said_otherwise(const Algorithm &algorithm, const Problem &problem,
                       const PlannerInputs &inputs) {
    if (!inputs.whole_up_to_bytes || problem.ranks < 2) return false;
    return algorithm.is_one_exchange() != (vector_bytes(problem) <= *inputs.whole_up_to_bytes);
}

bool rounds_between_ranks(const Algorithm &algorithm, const Problem &problem) {
    constexpr size_t narrow_bytes = 2;
    const TypeInfo &type = info(problem.type);
    return reduces(problem.collective) && !problem.codec.loses() && type.is_float &&
           type.bytes <= narrow_bytes && algorithm.sums_on_the_way() && problem.ranks > 2;
}

// A sum of two values is rounded once in any case.
bool rounds_exact_sums(const Algorithm &algorithm, const Problem &problem) {
    return problem.codec.sums_exactly && algorithm.sums_on_the_way() && problem.ranks > 2;
}

Candidate examine(const Algorithm &algorithm, const Problem &problem, const PlannerInputs &inputs,
                  const Result<StepCounts> &counted) {
    Candidate candidate{
        .plan = {.algorithm = algorithm, .codec = problem.codec, .ranks = problem.ranks},
        .refusal = {}};
    if (!counted) {
        candidate.refusal = counted.error().text;
        return candidate;
    }
    if (problem.in_rank_order && !algorithm.keeps_rank_order(problem.collective, problem.team(0))) {
        candidate.refusal = "would not keep the order of the ranks, which the operation needs";
        return candidate;
    }
    if (rounds_exact_sums(algorithm, problem)) {
        candidate.refusal = "would round the sum at every rank, and exact sums are rounded once";
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
    return std::tie(cost.noise.first, cost.remote_peers, cost.time_ns) <
           std::tie(than.noise.first, than.remote_peers, than.time_ns);
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
    if (plan.codec.shares_scales()) {
        Codec of_all = plan.codec;
        of_all.shared_block = static_cast<uint32_t>(
            std::min<uint64_t>(uint64_t{of_all.shared_block} * plan.ranks, largest_bucket));
        return unit_nmse(of_all, type);
    }
    return loss_of(plan.codec, type, cost.noise.first, cost.summands)
        .followed_by(loss_of(plan.inner_codec, type, cost.inner_noise.first, cost.summands))
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
    return invalid_argument("%s sums in an order that depends on where the ranks are, which a "
                            "reproducible communicator rules out",
                            spec(algorithm).c_str());
}

const Result<StepCounts> &counted(const Algorithm &algorithm, const Problem &problem,
                                  StepCountCache &counts, const SharedLinks &links) {
    CountedSteps steps{.collective = problem.collective,
                       .root = problem.root,
                       .is_lossless = problem.codec.is_lossless(),
                       .owner = problem.codec.owner,
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
        return invalid_argument("root %u is not one of %u ranks", asked.root, asked.ranks);
    QCCL_TRY(check_reproducible(forced, inputs.is_reproducible));
    std::vector<Problem> problems(codecs.size(), asked);
    for (size_t i = 0; i < codecs.size(); i++) {
        problems[i].codec = codecs[i];
        problems[i].places = planned_places(asked.places, inputs);
        problems[i].codec = codec_for(problems[i]);
        if (codecs[i].shares_scales()) problems[i].type = DataType::float32; // of the integers
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
            return invalid_argument("%s: %s", spec(forced).c_str(), candidate.refusal.c_str());
        }
        return invalid_argument("there is no %s by %s", name(problem.collective),
                                spec(forced).c_str());
    }
    const Candidate *const best = best_of(those_that(
        candidates, [](const Candidate &candidate) { return candidate.refusal.empty(); }));
    if (best) return best->plan;
    return invalid_argument("no algorithm for %s: %s", name(problem.collective),
                            candidates.empty() ? "there is none"
                                               : candidates.front().refusal.c_str());
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
    auto lossless = choose_algorithm(with_codec(problem, with_lossless_integers(problem.codec)),
                                     inputs, forced, counts);
    if (lossless && !inputs.speeds.is_remote_rate_known()) return lossless;
    if (!lossless || lossless->cost.time_ns > plan.cost.time_ns * least_gain_of(plan.codec))
        return plan;
    return lossless;
}

// ---- Codec by budget

namespace {

using Outcome = BudgetChoice::Outcome;

double bits_of_type(const Problem &problem) { return bits_per_value({}, problem.type); }

// Returns the codecs that the budget of `problem` allows, whatever they lose.
std::vector<BudgetOption> allowed_codecs(const Problem &problem) {
    const Budget &budget = problem.codec.budget;
    std::vector<BudgetOption> options;
    for (const BoundedCodec &row : bounded_codecs()) {
        const double bits = bits_per_value(row.codec, problem.type);
        if (!budget.allows(static_cast<unsigned>(row.codec.id))) continue;
        if (bits >= bits_of_type(problem) || (budget.bits != 0 && bits > budget.most_bits()))
            continue;
        options.push_back({.codec = row.codec, .bits = bits});
    }
    return options;
}

bool may_be_chosen(const Candidate &candidate, const Algorithm &forced) {
    if (!forced) return candidate.refusal.empty();
    return candidate.plan.algorithm == forced && can_run(candidate);
}

bool keeps(const Budget &budget, const std::optional<double> &nmse) {
    return nmse && (budget.nmse == 0 || *nmse <= budget.nmse);
}

// Sets the option's plan. All `candidates` have the option's codec. The plan is the one that
// choose() takes among those that keep the budget, or else the one that loses least.
void take_best(BudgetOption &option, const std::vector<Candidate> &candidates, const Budget &budget,
               const Algorithm &forced) {
    const auto is_possible = [&](const Candidate &candidate) {
        return may_be_chosen(candidate, forced) && keeps(budget, nmse_bound(candidate.plan));
    };
    const Candidate *const best = best_of(those_that(candidates, is_possible));
    option.keeps = best != nullptr;
    if (best) {
        option.plan = best->plan;
        option.nmse = nmse_bound(best->plan);
        return;
    }
    for (const Candidate &candidate : candidates) {
        if (!may_be_chosen(candidate, forced)) continue;
        const auto nmse = nmse_bound(candidate.plan);
        if (option.plan && !(nmse && (!option.nmse || *nmse < *option.nmse))) continue;
        option.plan = candidate.plan;
        option.nmse = nmse;
    }
}

// Returns the fastest option that keeps the budget; nullptr if there is none. Options are ordered
// by bits, so the first of those that are as fast has the fewest.
const BudgetOption *fastest_of(const std::vector<BudgetOption> &options) {
    const BudgetOption *fastest = nullptr;
    for (const BudgetOption &option : options)
        if (option.keeps && (!fastest || option.plan->cost.time_ns < fastest->plan->cost.time_ns))
            fastest = &option;
    for (const BudgetOption &option : options)
        if (option.keeps && option.plan->cost.time_ns <= fastest->plan->cost.time_ns * equal_time)
            return &option;
    return nullptr;
}

// Returns the option with the smallest bound of one encode, and marks it. More bits do not always
// lose less, because codecs of different families differ.
const BudgetOption *most_accurate_of(std::vector<BudgetOption> &options) {
    BudgetOption *best = nullptr;
    for (BudgetOption &option : options)
        if (!best || *option.nmse < *best->nmse) best = &option;
    if (best) best->keeps = true;
    return best;
}

Result<BudgetChoice> choose_by_bits(const Problem &problem, const PlannerInputs &inputs,
                                    const Algorithm &forced, StepCountCache *counts,
                                    BudgetChoice choice) {
    for (BudgetOption &option : choice.options) option.nmse = bound_of(option.codec)->nmse;
    if (problem.codec.budget.most_bits() >= bits_of_type(problem)) {
        choice.outcome = Outcome::fits;
        return choice;
    }
    const BudgetOption *const best = most_accurate_of(choice.options);
    choice.outcome = best ? Outcome::codec : Outcome::missed;
    if (!best) return choice;
    Codec named = best->codec;
    named.min_bytes = problem.codec.min_bytes;
    named.owner = problem.codec.owner;
    QCCL_TRY(choice.plan, choose(with_codec(problem, named), inputs, forced, counts));
    if (choice.plan.codec.is_lossless())
        choice.outcome =
            inputs.speeds.is_remote_rate_known() ? Outcome::no_gain : Outcome::unknown_link;
    return choice;
}

Result<BudgetChoice> choose_by_error(const Problem &problem, const PlannerInputs &inputs,
                                     const Algorithm &forced, StepCountCache *counts,
                                     BudgetChoice choice) {
    std::vector<Codec> codecs;
    for (const BudgetOption &option : choice.options) {
        codecs.push_back(option.codec);
        codecs.back().owner = problem.codec.owner;
    }
    QCCL_TRY(const auto candidates, find_candidates(problem, codecs, inputs, forced, counts));
    for (size_t i = 0; i < codecs.size(); i++)
        take_best(choice.options[i], candidates[i], problem.codec.budget, forced);
    const BudgetOption *const best = fastest_of(choice.options);
    if (!best) {
        choice.outcome = Outcome::missed;
    } else if (problem.codec.min_bytes) {
        choice.plan = *best->plan;
    } else if (!problem.has_hosts()) {
        choice.outcome = Outcome::no_link;
    } else if (!inputs.speeds.is_remote_rate_known()) {
        choice.outcome = Outcome::unknown_link;
    } else if (best->plan->cost.time_ns * least_gain > choice.plan.cost.time_ns) {
        choice.outcome = Outcome::no_gain;
    } else {
        choice.plan = *best->plan;
    }
    return choice;
}

} // namespace

std::optional<double> nmse_bound(const Plan &plan) {
    double nmse = 0;
    for (const auto &[codec, encodes] :
         {std::pair(plan.codec, plan.cost.noise.first),
          std::pair(plan.inner_codec, plan.cost.inner_noise.first)}) {
        if (!codec.loses() || encodes == 0) continue;
        const BoundedCodec *const bound = bound_of(codec);
        if (!bound || encodes > bound->most_encodes) return std::nullopt;
        nmse += bound->nmse * encodes;
    }
    return nmse;
}

Result<BudgetChoice> choose_within(const Problem &asked, const PlannerInputs &inputs,
                                   const Algorithm &forced, StepCountCache *counts) {
    Problem problem = asked;
    problem.places = planned_places(asked.places, inputs);
    BudgetChoice choice;
    QCCL_TRY(choice.plan, choose(with_codec(problem, {}), inputs, forced, counts));
    const auto &least = problem.codec.min_bytes;
    if (least && vector_bytes(problem) < *least) {
        choice.outcome = Outcome::too_small;
        return choice;
    }
    choice.options = allowed_codecs(problem);
    const auto choose_codec = problem.codec.budget.nmse == 0 ? choose_by_bits : choose_by_error;
    QCCL_TRY(choice, choose_codec(problem, inputs, forced, counts, std::move(choice)));
    choice.plan.notice = missed_budget(choice, problem);
    return choice;
}

std::string missed_budget(const BudgetChoice &choice, const Problem &problem) {
    if (choice.outcome != Outcome::missed) return {};
    const BudgetOption *least = nullptr;
    for (const BudgetOption &option : choice.options)
        if (option.plan && option.nmse && (!least || *option.nmse < *least->nmse)) least = &option;
    if (!least) return "no codec with a known bound takes so few bits a value";
    char text[160];
    std::snprintf(text, sizeof text,
                  "no codec keeps that error on %u ranks: the least is %.2g, of %s by %s",
                  problem.ranks, *least->nmse, spec(least->codec).c_str(),
                  spec(least->plan->algorithm).c_str());
    return text;
}

} // namespace qccl
