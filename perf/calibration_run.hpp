// One rank's part in a calibration: the calls that it measures with the others, and what rank 0
// makes of them.
#pragma once

#include "perf/crew.hpp"
#include "perf/crew_machine.hpp"
#include "plan/calibration.hpp"

#include <qccl/qccl.h>

#include <cstdint>
#include <functional>
#include <string>

namespace qccl::perf {

struct Calibrated {
    Calibration figures;
    MeasuredJob job;    // of jobs of this shape; its figures are `known` and these
    uint32_t calls = 0; // that were measured
    double within = 0;  // what part of them the figures predict within a fifth of its time
    uint32_t codecs = 0;
};

// Whom rank 0 tells how far it has come, of how many steps. They become more once it is known how
// long large calls take.
using TellStep = std::function<void(uint64_t step, uint64_t steps, const std::string &what)>;

// The largest vectors that are measured unless a user says otherwise, and the least that the user
// may say.
inline constexpr uint64_t largest_calibrated = uint64_t{64} << 20;
inline constexpr uint64_t least_largest_calibrated = uint64_t{64} << 10;

// All ranks call it together, with the same `largest` bytes of a vector; on the others than rank 0
// the outcome is empty, and neither `known`, the figures that other jobs of the machine have shown,
// nor `tell` counts. How fast memory is copied the ranks of one host show, where none shares a
// core; else what is known of it stays.
Result<Calibrated> calibrate(Crew &crew, qcclComm_t comm, const Machine &machine,
                             const Calibration &known, uint64_t largest, const TellStep &tell);

// "4 ranks on 2 hosts, 2 a core".
std::string in_words(const Machine &machine);

} // namespace qccl::perf
