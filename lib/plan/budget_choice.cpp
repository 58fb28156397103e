// Chooses by error or by bits. Every combination of codec and algorithm gets a bound of its error
// and a predicted time first.
#include "plan/budget_choice.hpp"

#include "codec/error_bound.hpp"

#include <cstdio>

namespace qccl {

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
    QCCL_TRY(choice.plan, choose(with_codec(problem, named), inputs, forced, counts));
    if (choice.plan.codec.is_lossless())
        choice.outcome =
            inputs.speeds.is_far_rate_known() ? Outcome::no_gain : Outcome::unknown_link;
    return choice;
}

Result<BudgetChoice> choose_by_error(const Problem &problem, const PlannerInputs &inputs,
                                     const Algorithm &forced, StepCountCache *counts,
                                     BudgetChoice choice) {
    std::vector<Codec> codecs;
    for (const BudgetOption &option : choice.options) codecs.push_back(option.codec);
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
    } else if (!inputs.speeds.is_far_rate_known()) {
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
    for (const auto &[codec, encodes] : {std::pair(plan.codec, plan.cost.noise),
                                         std::pair(plan.inner_codec, plan.cost.inner_noise)}) {
        if (codec.is_lossless() || encodes == 0) continue;
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
