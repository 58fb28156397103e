// Finds the speeds of a machine by which the planner's cost model predicts what has been measured
// there. Pure arithmetic; any thread.
#pragma once

#include "base/result.hpp"
#include "plan/calibration.hpp"
#include "plan/planner.hpp"

#include <span>
#include <string_view>
#include <vector>

namespace qccl::perf {

// A call of known time.
struct Probe {
    Problem problem;
    Algorithm algorithm;
    double measured_ns = 0;
    Tally tally = {};
    Geometry geometry = {};

    double predicted_ns(const Speeds &speeds) const {
        return cost(algorithm, problem, tally, geometry, speeds).time_ns;
    }
};
// Cut as `tables` say; `counts` are those of all probes between these ranks. An error means that
// the algorithm cannot run there.
Result<Probe> probe_of(const Problem &problem, const Algorithm &algorithm, double measured_ns,
                       const Tables &tables, StepCounts &counts);

struct SpeedFit {
    Calibration figures; // those that were asked for
    Speeds speeds;       // with them
    double within = 0;   // what part of the probes is predicted within a fifth of its time
};

// `figures`: numbers of calibrated_figures(). Those that no probe depends on are not
// in the outcome.
SpeedFit fit_speeds(std::span<const Probe> probes, const Speeds &start,
                    std::span<const size_t> figures);

// To three digits, which is more than any measurement of them is good for.
double rounded(double figure);

// Of these groups, as calibrated_figures() has them.
std::vector<size_t> figures_of(std::span<const std::string_view> groups);

} // namespace qccl::perf
