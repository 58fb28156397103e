// Chooses codec and algorithm of a call whose caller names a budget (codec=auto) instead of a
// codec. A pure function of the problem and of tables that are equal on all ranks, as choose, which
// calls it; never of the data.
#pragma once

#include "plan/planner.hpp"

#include <optional>
#include <string>
#include <vector>

namespace qccl {

// What the result's NMSE is at most, on data as bounded_codecs describes them; nothing where no
// bound is known.
std::optional<double> nmse_bound(const Plan &plan);

// A codec that the budget's bits and families allow.
struct BudgetOption {
    Codec codec;
    double bits = 0; // of a value on the wire
    // Of a budget with an error, the algorithm by which the codec would be used: the fastest of
    // those that keep the error, or else the one that loses least. Nothing: none can run with it.
    std::optional<Plan> plan = {};
    // The result's at most, and of a budget of bits alone that of one encode. Nothing: no bound is
    // known.
    std::optional<double> nmse = {};
    bool keeps = false; // of a budget of bits alone: is the most accurate one
};

struct BudgetChoice {
    enum class Outcome : uint8_t {
        codec,        // the plan's
        no_gain,      // a codec keeps the budget, and values as they are take no longer, or hardly
        no_link,      // likewise; no slow link is known: all ranks are on one host, or reproducible
        unknown_link, // likewise; the rate of the lines between hosts is unknown
        too_small,    // smaller than the budget's min=
        fits,         // values as they are take no more bits than allowed
        missed,       // no codec keeps the budget
    };
    Plan plan; // with none unless the outcome is codec
    Outcome outcome = Outcome::codec;
    std::vector<BudgetOption> options = {}; // by bits
};

// `problem.codec` is auto; `forced` as in choose.
//
// With nmse: each codec has the algorithm that choose would take with it, of those whose bound
// keeps the error; the fastest is chosen, and of codecs that are as fast within equal_time the one
// with the fewest bits. Values as they are keep every budget: they travel so unless a codec makes
// the call least_gain times as fast between hosts, or the budget says min=. With bits alone: the
// codec with the least bound within so many bits, as if it had been named.
Result<BudgetChoice> choose_within(const Problem &problem, const Tables &tables,
                                   const Algorithm &forced = {}, StepCounts *counts = nullptr);

// That no codec keeps the budget, in a sentence for the caller; empty if one does.
std::string missed_budget(const BudgetChoice &choice, const Problem &problem);

} // namespace qccl
