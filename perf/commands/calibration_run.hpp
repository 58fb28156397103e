// One rank's part of a calibration: describes the machine that the ranks of a RankGroup run on, in
// the planner's terms, measures calls together with the other ranks, and on rank 0 computes the
// figures from them. Used by qccl-perf calibrate. All ranks call the functions together, and each
// call blocks until all are done.
//
// fit_speeds finds the speeds of a machine with which the planner's cost model predicts what was
// measured there. Used by calibration. Any thread; a call blocks while it computes.
#pragma once

#include "base/result.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/run/rank_group.hpp"
#include "plan/calibration.hpp"
#include "plan/planner.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <qccl/qccl.h>

namespace qccl::perf {

// ---- The machine of the ranks

// Finds out which ranks are on one host, on which cores, and how many share a core. All ranks call
// this together; it blocks until all have exchanged their data.
Result<Machine> machine_of(RankGroup &rank_group);

// ---- Calibration

struct Calibrated {
    Calibration figures;
    MeasuredJob job;    // for jobs of this shape; its figures are `known` updated by `figures`
    uint32_t calls = 0; // calls measured
    double within = 0;  // fraction of them whose time the figures predict within a fifth
    uint32_t codecs = 0;
};

// Reports progress on rank 0. The number of steps grows once the time of large calls is known.
using TellStep = std::function<void(uint64_t step, uint64_t steps, const std::string &what)>;

// Largest vectors that are measured unless a user says otherwise, in bytes, and the least that the
// user may say.
inline constexpr uint64_t largest_calibrated = uint64_t{64} << 20;
inline constexpr uint64_t least_largest_calibrated = uint64_t{64} << 10;
// How many rounds of how many iterations a small call has unless a user says less. Large calls have
// fewer.
inline constexpr uint32_t most_calibrated_rounds = 3;
inline constexpr uint32_t most_calibrated_iterations = 200;

// What a calibration measures.
struct CalibrationExtent {
    uint64_t largest = largest_calibrated; // bytes of a vector
    uint32_t rounds = most_calibrated_rounds;
    uint32_t iterations = most_calibrated_iterations; // calls of a round
};

// All ranks call this together; it blocks until all are done. Rank 0's extent counts. Only rank 0
// uses `known` (figures that other jobs of this
// machine have found) and `tell`, and only rank 0 gets a result that is not empty. The copy rate is
// measured among the ranks of one host if none shares a core or no rate is known; otherwise the
// known rate stays.
Result<Calibrated> calibrate(RankGroup &rank_group, qcclComm_t comm, const Machine &machine,
                             const Calibration &known, const CalibrationExtent &extent,
                             const TellStep &tell);

// Returns a text such as "4 ranks on 2 hosts, 2 on a core".
std::string machine_text(const Machine &machine);

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
