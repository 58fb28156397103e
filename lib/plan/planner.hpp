// Chooses the algorithm and the cut of a collective. A pure function of the problem and of tables
// that are equal on all ranks, so that all ranks choose the same; never of a live measurement.
#pragma once

#include "base/result.hpp"
#include "plan/corrections.hpp"
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

struct Plan {
    Algorithm algorithm;
    // Without its min_bytes: none where the call is smaller, or the codec does not pay.
    Codec codec = {};
    Codec inner_codec = {}; // of unfinished values below the outermost tier
    Geometry geometry = {};
    Cost cost = {};
    std::string notice = {}; // what the caller is told of the choice; mostly nothing
};

// The expected NMSE of a result, on independent inputs: what each encode loses, composed as Loss
// says.
double predicted_nmse(const Plan &plan, DataType type);

// Everything that a choice depends on beside the problem.
struct Tables {
    Speeds speeds;
    ShapeLimits limits; // by which calls are cut
    // By which they would be cut without settings for it. Algorithm and codec are chosen by these,
    // so that settings that cut otherwise do not change results; an algorithm that `limits` have no
    // room for is not chosen.
    ShapeLimits usual_limits = limits;
    // Where somebody has said so: vectors of up to so many bytes are sent whole by every rank to
    // all others (oneshot), larger ones never.
    std::optional<uint64_t> whole_up_to_bytes = {};
    // A choice then takes no account of where the ranks are, and refuses algorithms whose sums
    // depend on it.
    bool is_reproducible = false;
    SharedLinks links = {};
    // Of this very job, by which times are corrected; null: none are known.
    std::shared_ptr<const Corrections> corrections = nullptr;
};

// With these, a choice is a function of the problem without its places: speeds are constants, and
// the call is cut by `limits` but chosen by `usual_limits`, which follow from the ranks alone.
Tables reproducible_tables(const ShapeLimits &limits, const ShapeLimits &usual_limits);

inline Problem with_codec(Problem problem, const Codec &codec) {
    problem.codec = codec;
    return problem;
}

// Those by which the problem's schedules are made: null with reproducible tables.
const Places *planned_places(const Places *places, const Tables &tables);

// Refuses an algorithm whose sums depend on where the ranks are, if `is_reproducible`.
Done check_reproducible(const Algorithm &algorithm, bool is_reproducible);

struct Candidate {
    Plan plan;
    std::string refusal; // why it cannot be, or may not be chosen by itself; empty otherwise
};

// The steps of schedules between certain ranks, counted by what else they depend on. Counting takes
// by far the most of a choice's time; whoever plans many calls of the same ranks keeps these from
// one to the next.
struct CountedSteps {
    Collective collective = Collective::all_reduce;
    uint32_t root = 0;
    bool is_lossless = true;
    std::string algorithm = {};

    auto operator<=>(const CountedSteps &) const = default;
};
using StepCounts = std::map<CountedSteps, Result<Tally>>;
// Counts them where they are not yet. The reference stays as long as `counts`. `links` as in tally;
// equal ones in all calls with these `counts`.
const Result<Tally> &counted(const Algorithm &algorithm, const Problem &problem, StepCounts &counts,
                             const SharedLinks &links = {});

// One for each algorithm for such a team that has the collective; `forced`, if it is not among
// those that are chosen from, comes last.
Result<std::vector<Candidate>> find_candidates(const Problem &problem, const Tables &tables,
                                               const Algorithm &forced = {},
                                               StepCounts *counts = nullptr);

// Of each of `codecs`, instead of the problem's; all take hardly longer than one.
Result<std::vector<std::vector<Candidate>>>
find_candidates(const Problem &problem, std::span<const Codec> codecs, const Tables &tables,
                const Algorithm &forced = {}, StepCounts *counts = nullptr);

// Those of `candidates` for which the condition holds. They stay where they are.
template <class Condition>
std::vector<const Candidate *> those_that(const std::vector<Candidate> &candidates,
                                          Condition condition) {
    std::vector<const Candidate *> chosen;
    for (const Candidate &candidate : candidates)
        if (condition(candidate)) chosen.push_back(&candidate);
    return chosen;
}

// Which of several candidates lose least if the rate between nodes is not what it is taken for:
// minimax regret (L. J. Savage, The Theory of Statistical Decision, 1951). Where that rate was
// measured, these are the fastest.
class MinimaxRegret {
public:
    explicit MinimaxRegret(const std::vector<const Candidate *> &candidates);

    // How many times as long as the fastest of them it takes, at the worst of the possible rates.
    double regret(const Cost &cost) const;
    // Is not much slower than the fastest, and has the least regret of those, within equal_time.
    bool is_cautious(const Cost &cost) const;
    // Of those that are cautious it is the fastest, within equal_time.
    bool is_among_best(const Cost &cost) const;

private:
    double least_ns_ = std::numeric_limits<double>::infinity();
    double least_slow_ns_ = least_ns_, least_fast_ns_ = least_ns_, most_ns_ = least_ns_;
    double least_regret_ = least_ns_, least_cautious_ns_ = least_ns_;
};

// The one that choose takes if it has these to choose from; nullptr: there is none.
const Candidate *best_of(const std::vector<const Candidate *> &candidates);

// Whether the engine can run it, which may be named though it may not be chosen by itself.
bool can_run(const Candidate &candidate);
// Of two that are as fast within `equal_time`: loses less, or as much with fewer streams between
// hosts, or with as many in less time.
bool is_preferred(const Cost &cost, const Cost &than);

// The fastest candidate, or where the rate between nodes was not measured the fastest of those with
// the least regret; among those that are as fast within `equal_time`, the one with the least error,
// and then the one with the fewest streams between hosts. Lossless sums of 8 and 16 bit floats are
// by rank, with one rounding, unless another algorithm is `forced`.
inline constexpr double equal_time = 1.08; // closer than the model comes to measured times
// Between hosts, a codec that does not say from which size on it is wanted is used where it makes
// the call so many times as fast; anywhere, one that is chosen by a budget.
inline constexpr double least_gain = 1.25;
Result<Plan> choose(const Problem &problem, const Tables &tables, const Algorithm &forced = {},
                    StepCounts *counts = nullptr);

} // namespace qccl
