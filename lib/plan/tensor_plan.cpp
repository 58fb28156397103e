// Asks the planner for each number of parts, with and without the codec. Picks the best time of
// each kind, and compares the two.
#include "plan/tensor_plan.hpp"

#include "plan/planner.hpp"

#include <algorithm>
#include <set>

namespace qccl {

// ---- Partitioning

static PartsTime best_time(std::span<const PartsTime> times, double equal_ratio) {
    const double least = std::ranges::min_element(times, {}, &PartsTime::time)->time;
    return *std::ranges::find_if(
        times, [&](const PartsTime &one) { return one.time <= least * equal_ratio; });
}

Partitioning choose_partitioning(std::span<const PartsTime> lossless,
                                 std::span<const PartsTime> compressed,
                                 const PartitionThresholds &thresholds) {
    Partitioning choice;
    choice.lossless = choice.compressed = best_time(lossless, thresholds.equal_time);
    if (!compressed.empty()) choice.compressed = best_time(compressed, thresholds.equal_time);
    choice.is_compressed = !compressed.empty() &&
                           choice.lossless.time > choice.compressed.time * thresholds.least_gain;
    choice.best = choice.is_compressed ? choice.compressed : choice.lossless;
    return choice;
}

// ---- Plans of tensors

// One call, cut into one part, two, four and so on.
struct TensorPlanner::Cuts {
    std::vector<PartsTime> times;
    std::vector<Plan> plans;

    const Plan &of(uint32_t parts) const {
        size_t i = 0;
        while (times[i].parts != parts) i++;
        return plans[i];
    }
};

TensorPlanner::TensorPlanner(const Problem &like, PlannerInputs inputs, Algorithm forced)
    : like_(like), inputs_(std::move(inputs)), forced_(forced) {}

Result<TensorPlanner::Cuts> TensorPlanner::cuts_of(const Problem &problem,
                                                   const Algorithm &forced) {
    constexpr uint32_t most_parts = 1 << 12;
    Cuts cuts;
    for (uint32_t parts = 1; parts <= most_parts; parts *= 2) {
        inputs_.limits.parts = inputs_.usual_limits.parts = parts;
        QCCL_TRY(Plan plan, choose(problem, inputs_, forced, &counts_));
        const bool is_finest = plan.geometry.instances < parts;
        if (is_finest && parts > 1) break; // smaller parts would be smaller than the codec's blocks
        cuts.times.push_back({parts, plan.cost.time_ns});
        cuts.plans.push_back(std::move(plan));
    }
    return cuts;
}

// Returns no cuts if the codec does not serve such a call. Between ranks of one host, and over
// links of unknown rate, there is no evidence that a codec would relieve them.
Result<TensorPlanner::Cuts> TensorPlanner::compressed_cuts(const Problem &problem) {
    Codec codec = like_.codec;
    const bool is_small = codec.min_bytes && vector_bytes(problem) < *codec.min_bytes;
    const bool is_asked_for =
        codec.min_bytes || (problem.has_hosts() && inputs_.speeds.is_remote_rate_known());
    if (codec.is_lossless() || is_small || !is_asked_for || !info(problem.type).is_float)
        return Cuts();
    codec.min_bytes = 0; // choose_partitioning() decides whether it pays
    if (!codec.is_auto()) return cuts_of(with_codec(problem, codec), forced_);
    inputs_.limits.parts = inputs_.usual_limits.parts = 0;
    QCCL_TRY(const BudgetChoice choice,
             choose_within(with_codec(problem, codec), inputs_, forced_, &counts_));
    if (choice.plan.codec.is_lossless()) return Cuts();
    codec = choice.plan.codec;
    codec.min_bytes = 0;
    return cuts_of(with_codec(problem, codec), choice.plan.algorithm);
}

Result<TensorPlan> TensorPlanner::plan(uint64_t count, DataType type) {
    const auto known = known_.find({count, type});
    if (known != known_.end()) return known->second;
    Problem problem = with_codec(like_, {});
    problem.count = count;
    problem.type = type;
    QCCL_TRY(const Cuts lossless, cuts_of(problem, forced_));
    QCCL_TRY(const Cuts compressed, compressed_cuts(problem));
    TensorPlan made;
    made.partitioning = choose_partitioning(
        lossless.times, compressed.times,
        {.equal_time = equal_time, .least_gain = like_.codec.min_bytes ? 1 : least_gain});
    const Cuts &chosen = made.partitioning.is_compressed ? compressed : lossless;
    made.plan = chosen.of(made.partitioning.best.parts);
    return known_.emplace(std::pair(count, type), std::move(made)).first->second;
}

static Rule rule_of(const NamedTensor &tensor, const TensorPlan &made) {
    Rule rule;
    rule.selector.collective = Collective::all_reduce;
    rule.selector.type = tensor.type;
    rule.selector.count = {tensor.count, tensor.count};
    rule.codec = made.plan.codec;
    // The plan has found that the codec pays, so the library need not check that again.
    if (!rule.codec->is_lossless()) rule.codec->min_bytes = 0;
    rule.algorithm = made.plan.algorithm;
    rule.pieces.parts = made.partitioning.best.parts;
    return rule;
}

PlanFile plan_file_of(std::span<const NamedTensor> tensors, std::span<const TensorPlan> plans,
                      uint32_t ranks, uint32_t hosts) {
    std::vector<Rule> rules;
    std::set<std::pair<uint64_t, DataType>> known;
    for (size_t i = 0; i < tensors.size(); i++)
        if (known.emplace(tensors[i].count, tensors[i].type).second)
            rules.push_back(rule_of(tensors[i], plans[i]));
    PlanFile file;
    file.ranks = ranks;
    file.hosts = hosts;
    file.rules = Rules(std::move(rules));
    return file;
}

} // namespace qccl
