// Chooses codec and algorithm of a call whose caller names a budget (codec=auto) instead of a
// codec. choose() calls it. The choice is a pure function of the problem and of inputs that are
// equal on all ranks, never of the data. Any thread, nothing blocks.
#pragma once

#include "plan/planner.hpp"

#include <optional>
#include <string>
#include <vector>

namespace qccl {

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
