// Tries each codec by a rehearsal of the sum and a plan, and selects the codec for an error budget.
#include "perf/info/advice.hpp"

#include "codec/error_model.hpp"
#include "perf/report/tool_files.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace qccl::perf {

// ---- Advice

Result<std::optional<double>> ErrorMeter::nmse(const Plan &plan) {
    std::string way;
    for (const std::string &word : {spec(plan.algorithm), spec(plan.codec), spec(plan.inner_codec)})
        way.append(word).append(" ");
    const auto found = known_.find(way);
    if (found != known_.end()) return found->second;
    QCCL_TRY(const auto measured, rehearsed_nmse(rehearsal_of(plan, problem_), data_));
    known_.emplace(std::move(way), measured);
    return measured;
}

static Result<CodecTrial> try_codec(const Codec &codec, ErrorMeter &meter,
                                    const PlannerInputs &inputs, StepCountCache &counts) {
    CodecTrial trial;
    trial.codec = codec;
    trial.bits = bits_per_value(codec, meter.problem().type);
    Codec anyway = codec;
    anyway.min_bytes = 0; // plan with the codec even if it does not pay
    QCCL_TRY(trial.plan, choose(with_codec(meter.problem(), anyway), inputs, {}, &counts));
    QCCL_TRY(const auto nmse, meter.nmse(trial.plan));
    if (!nmse)
        return invalid_argument(
            "the sum of the data is zero or not finite, and no part of it can be "
            "said to be lost");
    trial.nmse = *nmse;
    return trial;
}

Result<Advice> try_codecs(ErrorMeter &meter, const PlannerInputs &inputs) {
    Advice advice;
    const Problem problem = with_codec(meter.problem(), {});
    advice.has_known_link = problem.has_hosts() && inputs.speeds.is_remote_rate_known();
    StepCountCache counts;
    QCCL_TRY(advice.lossless, choose(problem, inputs, {}, &counts));
    for (const BoundedCodec &row : bounded_codecs()) {
        if (bits_per_value(row.codec, problem.type) >= bits_per_value({}, problem.type)) continue;
        QCCL_TRY(CodecTrial trial, try_codec(row.codec, meter, inputs, counts));
        advice.trials.push_back(std::move(trial));
    }
    return advice;
}

double gain(const Advice &advice, const CodecTrial &trial) {
    return advice.lossless.cost.time_ns / trial.plan.cost.time_ns;
}

BudgetAdvice advise(const Advice &advice, double nmse) {
    BudgetAdvice found{.nmse = nmse};
    double fastest = 0;
    for (const CodecTrial &trial : advice.trials) {
        if (trial.nmse <= nmse && (fastest == 0 || trial.plan.cost.time_ns < fastest))
            fastest = trial.plan.cost.time_ns;
    }
    for (const CodecTrial &trial : advice.trials) {
        const bool is_candidate =
            fastest == 0 || (trial.nmse <= nmse && trial.plan.cost.time_ns <= fastest * equal_time);
        if (is_candidate && (!found.trial || trial.nmse < found.trial->nmse)) found.trial = &trial;
    }
    if (fastest == 0) return found;
    const bool pays = gain(advice, *found.trial) >= least_gain;
    found.outcome = !advice.has_known_link ? BudgetAdvice::Outcome::no_link
                    : pays                 ? BudgetAdvice::Outcome::codec
                                           : BudgetAdvice::Outcome::no_gain;
    return found;
}

std::string sentence_of(const Advice &advice, const BudgetAdvice &chosen) {
    const CodecTrial &trial = *chosen.trial;
    const std::string codec = spec(trial.codec), times = time_text(trial.plan.cost.time_ns) +
                                                         " instead of " +
                                                         time_text(advice.lossless.cost.time_ns);
    char text[512];
    switch (chosen.outcome) {
    case BudgetAdvice::Outcome::codec:
        std::snprintf(text, sizeof text,
                      "For an NMSE of at most %g use %s: the sum takes %s, and its NMSE is %.2e.",
                      chosen.nmse, codec.c_str(), times.c_str(), trial.nmse);
        break;
    case BudgetAdvice::Outcome::no_link:
        return "Leave QCCL_CODEC alone: all ranks are on one host, where memory is the bound and a "
               "codec gains little. --topology names a network.";
    case BudgetAdvice::Outcome::no_gain:
        std::snprintf(text, sizeof text,
                      "For an NMSE of at most %g leave QCCL_CODEC alone: no codec that keeps it "
                      "makes the sum %g times as fast on this network; with %s it takes %s.",
                      chosen.nmse, least_gain, codec.c_str(), times.c_str());
        break;
    case BudgetAdvice::Outcome::missed:
        std::snprintf(text, sizeof text,
                      "Leave QCCL_CODEC alone: no codec keeps an NMSE of %g on these data; %s "
                      "comes nearest, with %.2e.",
                      chosen.nmse, codec.c_str(), trial.nmse);
        break;
    }
    return text;
}

} // namespace qccl::perf
