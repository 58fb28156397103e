// The planner: chooses the algorithm and the cut of a collective, and also the codec if the caller
// names a budget (codec=auto) instead of a codec. The choice is a pure function of the problem and
// of inputs that are equal on all ranks, never of the data or of a live measurement, so that all
// ranks choose the same.
//
// Used by the C API and the tools. Any thread, nothing blocks.
#pragma once

#include "base/result.hpp"
#include "plan/calibration.hpp"
#include "plan/cost.hpp"

#include <compare>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qccl {

// ---- Algorithm and cut

struct Plan {
    Algorithm algorithm;
    // Without min_bytes; none if the call is smaller than min_bytes, or the codec does not pay.
    Codec codec = {};
    Codec inner_codec = {}; // of unfinished values below the outermost tier
    Geometry geometry = {};
    Cost cost = {};
    uint32_t ranks = 1;      // of the call
    std::string notice = {}; // a sentence for the caller about the choice; mostly empty
};

// Returns the expected NMSE of a result on independent inputs: the losses of all encodes, composed
// as in Loss.
double predicted_nmse(const Plan &plan, DataType type);

// What a choice depends on beside the problem.
struct PlannerInputs {
    CostModel speeds;
    ShapeLimits limits; // by which calls are cut
    // Limits that would hold without settings for the cut. Algorithm and codec are chosen by these,
    // so that settings for the cut do not change results. An algorithm that `limits` have no space
    // for is not chosen.
    ShapeLimits usual_limits = limits;
    // Set if a setting says so: every rank sends vectors of up to so many bytes whole to all others
    // (oneshot), and never larger ones.
    std::optional<uint64_t> whole_up_to_bytes = {};
    // The choice does not depend on where the ranks are. The planner refuses algorithms whose sums
    // depend on the places.
    bool is_reproducible = false;
    SharedLinks links = {};
    // Factors of this very job, by which times are corrected; null: none are known.
    std::shared_ptr<const Corrections> corrections = nullptr;
};

// Returns inputs with which a choice is a function of the problem without its places. Its speeds
// are constants. Calls are cut by `limits` but chosen by `usual_limits`, which follow from the
// ranks alone.
PlannerInputs reproducible_inputs(const ShapeLimits &limits, const ShapeLimits &usual_limits);

inline Problem with_codec(Problem problem, const Codec &codec) {
    problem.codec = codec;
    return problem;
}

// Returns the places by which the problem's schedules are made; null if the choice is reproducible.
const RankTopology *planned_places(const RankTopology *places, const PlannerInputs &inputs);

// Refuses an algorithm (invalid_argument) whose sums depend on where the ranks are, if
// `is_reproducible`.
Done check_reproducible(const Algorithm &algorithm, bool is_reproducible);

struct Candidate {
    Plan plan;
    std::string refusal; // why it cannot run, or may not be chosen by itself; empty otherwise
};

// Identifies the counted steps of schedules between certain ranks. Counting takes by far the most
// of a choice's time, so a caller that plans many calls of the same ranks keeps a StepCountCache
// from one call to the next.
struct CountedSteps {
    Collective collective = Collective::all_reduce;
    uint32_t root = 0;
    bool is_lossless = true;
    OwnerKeeps owner = OwnerKeeps::decoded;
    std::string algorithm = {};

    auto operator<=>(const CountedSteps &) const = default;
};
using StepCountCache = std::map<CountedSteps, Result<StepCounts>>;
// Returns the counted steps; counts them unless `counts` has them. The reference is valid as long
// as `counts`. `links`: as in step_counts(); equal in all calls with these `counts`.
const Result<StepCounts> &counted(const Algorithm &algorithm, const Problem &problem,
                                  StepCountCache &counts, const SharedLinks &links = {});

// Returns a candidate for each algorithm for such a team that has the collective. `forced` comes
// last if it is not among those that the planner chooses from. `counts` may be null. Returns
// invalid_argument if the root is not a rank, or if `inputs` rule out `forced`.
Result<std::vector<Candidate>> find_candidates(const Problem &problem, const PlannerInputs &inputs,
                                               const Algorithm &forced = {},
                                               StepCountCache *counts = nullptr);

// Returns the candidates for each of `codecs` instead of the problem's codec. All of them take
// hardly longer than one.
Result<std::vector<std::vector<Candidate>>>
find_candidates(const Problem &problem, std::span<const Codec> codecs, const PlannerInputs &inputs,
                const Algorithm &forced = {}, StepCountCache *counts = nullptr);

// Returns pointers to those of `candidates` for which the condition holds.
template <class Condition>
std::vector<const Candidate *> those_that(const std::vector<Candidate> &candidates,
                                          Condition condition) {
    std::vector<const Candidate *> chosen;
    for (const Candidate &candidate : candidates)
        if (condition(candidate)) chosen.push_back(&candidate);
    return chosen;
}

// Finds the candidates that lose least if the rate between hosts differs from the assumed one:
// minimax regret (L. J. Savage, The Theory of Statistical Decision, 1951). If that rate was
// measured, these are the fastest.
class MinimaxRegret {
public:
    explicit MinimaxRegret(const std::vector<const Candidate *> &candidates);

    // Returns how many times as long as the fastest candidate `cost` takes, at the worst possible
    // rate.
    double regret(const Cost &cost) const;
    // Whether `cost` is not much slower than the fastest candidate, and has the least regret of
    // such candidates, within equal_time.
    bool is_cautious(const Cost &cost) const;
    // Whether `cost` is cautious, and the fastest of the cautious ones, within equal_time.
    bool is_among_best(const Cost &cost) const;

private:
    double least_ns_ = std::numeric_limits<double>::infinity();
    double least_slow_ns_ = least_ns_, least_fast_ns_ = least_ns_, most_ns_ = least_ns_;
    double least_regret_ = least_ns_, least_cautious_ns_ = least_ns_;
};

// Returns the candidate that choose() takes from these; nullptr if there are none.
const Candidate *best_of(const std::vector<const Candidate *> &candidates);

// Whether the engine can run the candidate. A caller may name such a candidate even if the planner
// may not choose it by itself.
bool can_run(const Candidate &candidate);
// Returns whether `cost` is better than `than` if both are as fast within `equal_time`: `cost`
// loses less, or as much with fewer streams between hosts, or with as many in less time.
bool is_preferred(const Cost &cost, const Cost &than);

// choose() takes the fastest candidate. If the rate between hosts was not measured, it takes the
// fastest of those with the least regret. Among candidates that are as fast within `equal_time`,
// the one with the least error wins, and then the one with the fewest streams between hosts.
// Lossless sums of 8 and 16 bit floats are made by rank, with one rounding, unless another
// algorithm is `forced`.
inline constexpr double equal_time = 1.08; // the model is no closer to measured times
// Between hosts, a codec without min= is used only if the predicted speed-up is at least this
// factor. A codec that is chosen by a budget needs it anywhere.
inline constexpr double least_gain = 1.25;
// Returns that factor; a codec that loses nothing only has to be faster.
double least_gain_of(const Codec &codec);
// Plans a call. `forced`: the algorithm that the caller names; empty: the planner chooses. `counts`
// may be null. Returns invalid_argument, with the reason, if no plan is possible.
Result<Plan> choose(const Problem &problem, const PlannerInputs &inputs,
                    const Algorithm &forced = {}, StepCountCache *counts = nullptr);

// ---- Codec by budget

// Returns an upper bound for the result's NMSE, on data as bounded_codecs() describes them; nothing
// if no bound is known.
std::optional<double> nmse_bound(const Plan &plan);

// A codec that the budget's bits and families allow.
struct BudgetOption {
    Codec codec;
    double bits = 0; // per value on the wire
    // Only if the budget names an error: the codec with the fastest algorithm that keeps the error,
    // or else with the one that loses least. Nothing: no algorithm can run with the codec.
    std::optional<Plan> plan = {};
    // Bound of the result's NMSE, or of one encode's if the budget names bits alone. Nothing: no
    // bound is known.
    std::optional<double> nmse = {};
    bool keeps = false; // the plan keeps the error; for bits alone: the most accurate option
};

struct BudgetChoice {
    enum class Outcome : uint8_t {
        codec,   // the call uses the plan's codec
        no_gain, // a codec keeps the budget, but makes the call no faster, or hardly
        no_link, // as no_gain: no slow link is known, as all ranks are on one host or reproducible
        unknown_link, // as no_gain: the rate between hosts is unknown
        too_small,    // the call is smaller than the budget's min=
        fits,         // unencoded values take no more bits than allowed
        missed,       // no codec keeps the budget
    };
    Plan plan; // lossless unless the outcome is codec
    Outcome outcome = Outcome::codec;
    std::vector<BudgetOption> options = {}; // ordered by bits
};

// Chooses codec and algorithm for a problem whose codec is auto; `forced`: as in choose(). Returns
// the errors of choose().
//
// If the budget names an error (nmse=), each codec is combined with the algorithm that choose()
// takes with it among those whose bound keeps the error. The fastest combination wins; of codecs
// that are as fast within equal_time, the one with the fewest bits wins. Unencoded values keep
// every budget: the call stays lossless unless a codec makes it least_gain times as fast between
// hosts, or the budget says min=. If the budget names bits alone, the codec with the smallest bound
// within these bits is used, as if the caller had named it.
Result<BudgetChoice> choose_within(const Problem &problem, const PlannerInputs &inputs,
                                   const Algorithm &forced = {}, StepCountCache *counts = nullptr);

// Returns a sentence for the caller if no codec keeps the budget; empty if one does.
std::string missed_budget(const BudgetChoice &choice, const Problem &problem);

} // namespace qccl
