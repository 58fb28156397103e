// One rank's part of a calibration: describes the machine that the ranks of a RankGroup run on, in
// the planner's terms, measures calls together with the other ranks, and on rank 0 computes the
// figures from them. Used by qccl-perf calibrate. All ranks call the functions together, and each
// call blocks until all are done.
#pragma once

#include "perf/cli/machine_options.hpp"
#include "perf/run/rank_group.hpp"
#include "plan/calibration.hpp"

#include <cstdint>
#include <functional>
#include <string>

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

// All ranks call this together; it blocks until all are done. `largest` limits the bytes of a
// vector; rank 0's counts. Only rank 0 uses `known` (figures that other jobs of this
// machine have found) and `tell`, and only rank 0 gets a result that is not empty. The copy rate is
// measured among the ranks of one host if none shares a core or no rate is known; otherwise the
// known rate stays.
Result<Calibrated> calibrate(RankGroup &rank_group, qcclComm_t comm, const Machine &machine,
                             const Calibration &known, uint64_t largest, const TellStep &tell);

// Returns a text such as "4 ranks on 2 hosts, 2 on a core".
std::string in_words(const Machine &machine);

} // namespace qccl::perf
