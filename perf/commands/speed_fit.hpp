// Finds the speeds of a machine with which the planner's cost model predicts what was measured
// there. Used by calibration. Any thread; a call blocks while it computes.
#pragma once

#include "base/result.hpp"
#include "plan/calibration.hpp"
#include "plan/planner.hpp"

#include <span>
#include <string_view>
#include <vector>

namespace qccl::perf {

// A call with a measured time.
struct Probe {
    Problem problem;
    Algorithm algorithm;
    double measured_ns = 0;
    StepCounts step_counts = {};
    Geometry geometry = {};

    double predicted_ns(const CostModel &speeds) const {
        return cost(algorithm, problem, step_counts, geometry, speeds).time_ns;
    }
};
// Makes a probe of a measured call, cut as `inputs` say. `counts` is shared by all probes between
// these ranks. Fails if the algorithm cannot run there.
Result<Probe> probe_of(const Problem &problem, const Algorithm &algorithm, double measured_ns,
                       const PlannerInputs &inputs, StepCountCache &counts);

struct SpeedFit {
    Calibration figures; // the fitted figures
    CostModel speeds;    // the start speeds with these figures
    double within = 0;   // fraction of the probes whose time is predicted within a fifth
};

// `figures` are indices of calibrated_figures(). The result omits those on which no probe depends.
SpeedFit fit_speeds(std::span<const Probe> probes, const CostModel &start,
                    std::span<const size_t> figures);

// Rounds to three digits, which exceeds the accuracy of any such measurement.
double rounded(double figure);

// Returns the indices of the figures in these groups of calibrated_figures().
std::vector<size_t> figures_of(std::span<const std::string_view> groups);

} // namespace qccl::perf
