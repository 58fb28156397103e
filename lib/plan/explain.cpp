// Counts sends on the schedules, and weighs them with the size of each chunk's messages. Judges the
// candidates of a call, and words why each of them won or lost.
#include "plan/explain.hpp"

#include "plan/rank_program.hpp"
#include "schedule/lower.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace qccl {

// ---- Bytes by link class

LinkClassOf link_class_by_hosts(const RankTopology *places) {
    return [places](uint32_t from, uint32_t to) {
        const bool is_remote =
            places && places->hosts().group_of(from) != places->hosts().group_of(to);
        return is_remote ? LinkClass::tcp : LinkClass::shared_memory;
    };
}

Result<LinkByteCounter::ChunkSends> LinkByteCounter::count_sends(const Algorithm &algorithm,
                                                                 const Problem &problem) const {
    ChunkSends sends;
    for (uint32_t rank = 0; rank < problem.ranks; rank++) {
        QCCL_TRY(const Schedule author, emit(algorithm, problem.collective, problem.team(rank)));
        QCCL_TRY(const Schedule placed, place_codec(author));
        sends.chunks = placed.chunks;
        sends.outbox = std::max(sends.outbox, placed.outbox);
        for (const Step &step : placed.steps) {
            if (step.verb != Verb::send) continue;
            const auto of_class = static_cast<size_t>(link_class_(rank, step.peer));
            std::vector<uint64_t> &times = sends.times[of_class][step.has(Step::inner)];
            times.resize(placed.chunks);
            times[step.chunk]++;
        }
    }
    return sends;
}

Result<const LinkByteCounter::ChunkSends *> LinkByteCounter::sends_of(const Algorithm &algorithm,
                                                                      const Problem &problem) {
    std::string key = spec(algorithm);
    key.append(" ").append(name(problem.collective)).append(" ");
    key.append(std::to_string(problem.root));
    if (const auto known = known_.find(key); known != known_.end()) return &known->second;
    QCCL_TRY(ChunkSends sends, count_sends(algorithm, problem));
    return &known_.emplace(std::move(key), std::move(sends)).first->second;
}

Result<LinkBytes> LinkByteCounter::count(const Plan &plan, const Problem &problem,
                                         const ShapeLimits &limits) {
    QCCL_TRY(const ChunkSends *const sends, sends_of(plan.algorithm, problem));
    SimulatedCall call{
        .problem = problem, .algorithm = plan.algorithm, .limits = limits, .speeds = {}};
    QCCL_TRY(const CallGeometry shape,
             CallGeometry::create(call, sends->chunks, sends->outbox, false));
    LinkBytes bytes{};
    for (const bool is_inner : {false, true}) {
        for (uint32_t chunk = 0; chunk < sends->chunks; chunk++) {
            const uint64_t each = shape.all_bytes(shape.length_of(chunk), is_inner);
            for (size_t of_class = 0; of_class < link_classes; of_class++)
                if (const auto &times = sends->times[of_class][is_inner]; !times.empty())
                    bytes[of_class] += times[chunk] * each;
        }
    }
    return bytes;
}

// ---- Explanations

namespace {

template <class... Arguments> std::string print(const char *format, Arguments... arguments) {
    char text[256];
    std::snprintf(text, sizeof text, format, arguments...);
    return text;
}

std::string print_factor(double factor) { return print("%.3g", factor); }

// Names the part that makes up most of the time that the plan has more than `best`: "1.2 ms more on
// the wire". The parts of a cost overlap, so their sum means nothing.
std::string greatest_excess(const Plan &plan, const Cost &best) {
    const Cost &cost = plan.cost;
    if (cost.time_ns / cost.correction <= best.time_ns / best.correction)
        return "measured calls by it take longer than is counted";
    struct CostPart {
        double more;
        const char *where;
    };
    const std::array<CostPart, 4> parts = {
        {{cost.wire_ns - best.wire_ns, "on the wire"},
         {cost.compute_ns - best.compute_ns, "copying, encoding and decoding"},
         {cost.messages_ns - best.messages_ns, "handling messages"},
         {cost.latency_ns - best.latency_ns, "waiting for messages"}}};
    const auto most = std::ranges::max_element(parts, {}, &CostPart::more);
    if (most->more < (cost.time_ns - best.time_ns) / 2)
        return plan.geometry.instances == 1 ? "its ranks wait longer for each other's work"
                                            : "its segments overlap less work with the wire";
    std::string text = print_time(most->more) + " more " + most->where;
    if (most == parts.end() - 1 && cost.rounds > best.rounds)
        text += print(", in %u rounds instead of %u", cost.rounds, best.rounds);
    return text;
}

// Whether a factor in the text would show no difference.
bool is_as_fast(const Cost &cost, const Cost &best) {
    return cost.time_ns >= best.time_ns && cost.time_ns < best.time_ns * 1.005;
}

// Says why `plan` lost to the chosen plan, which is about as fast. The order is that of
// is_preferred.
std::string finer_difference(const Plan &plan, const Plan &best, DataType type) {
    const std::string as_fast = print("as fast within %.0f %%, but ", (equal_time - 1) * 100);
    if (plan.cost.noise.first > best.cost.noise.first)
        return as_fast + print("loses more: NMSE %.2g instead of %.2g", predicted_nmse(plan, type),
                               predicted_nmse(best, type));
    if (plan.cost.remote_peers > best.cost.remote_peers)
        return as_fast + print("has more streams between hosts: %u of a rank instead of %u",
                               plan.cost.remote_peers, best.cost.remote_peers);
    if (plan.cost.time_ns == best.cost.time_ns)
        return "as fast; the one that is listed first is taken";
    if (is_as_fast(plan.cost, best.cost))
        return "slower by " + print_time(plan.cost.time_ns - best.cost.time_ns);
    return print("takes %s times as long",
                 print_factor(plan.cost.time_ns / best.cost.time_ns).c_str());
}

// Judges the candidates of one call.
class Judge {
public:
    Judge(const Explanation &all, const Algorithm &forced, const std::vector<Candidate> &found)
        : all_(all), forced_(forced),
          // Among the candidates from which the algorithm was chosen.
          regrets_(those_that(found, [this](const Candidate &candidate) {
              return candidate.refusal.empty() && !breaks_budget(candidate.plan);
          })) {}

    ExplainedCandidate judge(Candidate candidate) const {
        ExplainedCandidate judged{.plan = std::move(candidate.plan), .why = {}};
        if (candidate.refusal.empty() && !breaks_budget(judged.plan))
            judged.regret = regrets_.regret(judged.plan.cost);
        if (judged.plan.geometry.segment == 0) {
            judged.status = CandidateStatus::impossible;
            judged.why = candidate.refusal;
        } else if (judged.plan.algorithm == all_.chosen().algorithm) {
            judged.status = CandidateStatus::chosen;
            judged.why = why_chosen(candidate.refusal);
        } else if (!candidate.refusal.empty()) {
            judged.status = CandidateStatus::refused;
            judged.why = candidate.refusal;
        } else {
            judged.why = why_lost(judged.plan);
        }
        return judged;
    }

    // Says why the chosen candidate won. All candidates have to be judged before.
    std::string how_it_won() const {
        const Plan &best = all_.chosen();
        const Plan *next = nullptr;
        for (const ExplainedCandidate &other : all_.candidates) {
            if (other.status != CandidateStatus::lost || breaks_budget(other.plan)) continue;
            if (!next || other.plan.cost.time_ns < next->cost.time_ns) next = &other.plan;
        }
        if (!next) return "nothing else may be chosen";
        if (best.cost.time_ns > next->cost.time_ns && is_rate_in_doubt() &&
            !regrets_.is_cautious(next->cost))
            return print("takes %s times as long as %s, but if the rate between hosts, which %s, "
                         "is wrong by %g times, at most %s times as long as the best, and %s up "
                         "to %s",
                         print_factor(best.cost.time_ns / next->cost.time_ns).c_str(),
                         spec(next->algorithm).c_str(), where_the_rate_is_from(), rate_doubt,
                         print_factor(regrets_.regret(best.cost)).c_str(),
                         spec(next->algorithm).c_str(),
                         print_factor(regrets_.regret(next->cost)).c_str());
        if (best.cost.time_ns > next->cost.time_ns)
            return print("as fast as the fastest within %.0f %%, and less noisy or with fewer "
                         "streams between hosts",
                         (equal_time - 1) * 100);
        if (is_as_fast(next->cost, best.cost))
            return "nothing is faster; " + spec(next->algorithm) + " takes as long";
        return print("the fastest, before %s, which takes %s times as long",
                     spec(next->algorithm).c_str(),
                     print_factor(next->cost.time_ns / best.cost.time_ns).c_str());
    }

private:
    bool is_rate_in_doubt() const {
        return qccl::is_rate_in_doubt(all_.planned, all_.inputs.speeds);
    }
    const char *where_the_rate_is_from() const {
        return all_.inputs.speeds.is_remote_rate_known() ? "was stated and not measured"
                                                         : "is unknown";
    }

    std::string why_chosen(const std::string &refusal) const {
        if (!forced_) return {}; // how_it_won() says it when all have been judged
        return refusal.empty() ? "it was asked for" : "it was asked for; not by itself: " + refusal;
    }

    bool breaks_budget(const Plan &plan) const {
        const Codec &asked = all_.problem.codec;
        if (!asked.is_auto() || asked.budget.nmse == 0) return false;
        const auto most = nmse_bound(plan);
        return !most || *most > asked.budget.nmse;
    }

    std::string why_lost(const Plan &plan) const {
        const Plan &best = all_.chosen();
        const double factor = plan.cost.time_ns / best.cost.time_ns;
        if (breaks_budget(plan))
            return nmse_bound(plan) ? print("may lose NMSE %.2g, more than the budget's %.2g",
                                            *nmse_bound(plan), all_.problem.codec.budget.nmse)
                                    : "encodes too often for a bound of its error";
        if (forced_ && factor < 1)
            return print("not asked for, though it takes %s of the time",
                         print_factor(factor).c_str());
        if (factor <= equal_time && is_rate_in_doubt() && !regrets_.is_cautious(plan.cost))
            return print("takes %s times as long, and up to %s times as long as the best if the "
                         "rate between hosts is wrong by %g times",
                         print_factor(factor).c_str(),
                         print_factor(regrets_.regret(plan.cost)).c_str(), rate_doubt);
        if (factor <= equal_time) return finer_difference(plan, best, all_.problem.type);
        return print("takes %s times as long: ", print_factor(factor).c_str()) +
               greatest_excess(plan, best.cost);
    }

    const Explanation &all_;
    const Algorithm &forced_;
    const MinimaxRegret regrets_;
};

// Returns the lossless plan if choose() has compared the chosen plan with it.
std::optional<Plan> compared_lossless(const Problem &problem, const Plan &plan,
                                      const PlannerInputs &inputs, const Algorithm &forced,
                                      StepCountCache &counts) {
    if (plan.codec.is_lossless() || !problem.has_hosts() || inputs.is_reproducible)
        return std::nullopt;
    auto lossless = choose(with_codec(problem, {}), inputs, forced, &counts);
    return lossless ? std::optional(std::move(*lossless)) : std::nullopt;
}

} // namespace

std::string Explanation::reason() const {
    std::string text = spec(chosen().algorithm) + ": ";
    for (const ExplainedCandidate &candidate : candidates)
        if (candidate.status == CandidateStatus::chosen) text += candidate.why;
    if (!lossless) return text;
    return text + "; with " + spec(chosen().codec) + " " +
           print("%.2g", lossless->cost.time_ns / chosen().cost.time_ns) +
           " times as fast as with none (" + spec(lossless->algorithm) + ", " +
           print_time(lossless->cost.time_ns) + ")";
}

void Explanation::set_v_form(Collective form) {
    v_form = form;
    std::erase_if(candidates, [form](const ExplainedCandidate &candidate) {
        return !candidate.plan.algorithm.has(form);
    });
}

Result<Explanation> explain(const Problem &problem, const PlannerInputs &inputs,
                            const Algorithm &forced, LinkByteCounter *link_bytes) {
    Explanation all{.problem = problem, .planned = problem, .inputs = inputs, .choice = {}};
    StepCountCache counts;
    if (problem.codec.is_auto()) {
        QCCL_TRY(all.choice, choose_within(problem, inputs, forced, &counts));
    } else {
        QCCL_TRY(all.choice.plan, choose(problem, inputs, forced, &counts));
    }
    all.planned.places = planned_places(problem.places, inputs);
    all.planned.codec = all.chosen().codec;
    if (all.planned.codec.shares_scales()) all.planned.type = DataType::float32; // of the integers
    all.lossless = compared_lossless(problem, all.chosen(), inputs, forced, counts);
    QCCL_TRY(auto found, find_candidates(all.planned, inputs, forced, &counts));
    const Judge judge(all, forced, found);
    for (Candidate &candidate : found) all.candidates.push_back(judge.judge(std::move(candidate)));
    const bool counts_bytes = link_bytes && problem.ranks <= LinkByteCounter::most_ranks;
    for (ExplainedCandidate &candidate : all.candidates) {
        if (candidate.status == CandidateStatus::chosen && !forced)
            candidate.why = judge.how_it_won();
        if (!counts_bytes || candidate.status == CandidateStatus::impossible) continue;
        QCCL_TRY(candidate.link_bytes,
                 link_bytes->count(candidate.plan, all.planned, inputs.limits));
    }
    return all;
}

} // namespace qccl
