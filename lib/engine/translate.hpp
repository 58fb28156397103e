// Translates the steps of a placed schedule into operations on operands without addresses. The
// compiler of programs uses it. Pure functions; any thread.
#pragma once

#include "base/result.hpp"
#include "engine/accumulator_placement.hpp"
#include "engine/op.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

struct Translation {
    const Schedule *schedule = nullptr;
    std::span<const OperandRef> accumulators; // by chunk: where its accumulator lives
    DataType type = DataType::float32;
    // Payloads are plain values: in the outermost tier, and below.
    bool is_lossless = true, is_inner_lossless = true;
    uint32_t rank = 0;    // the rank that has the schedule
    bool divides = false; // divide a finished sum by the number of ranks (avg)
};

// By chunk: returns true for outputs that some step reads. All other outputs may be stored past the
// cache.
std::vector<bool> read_outputs(const Schedule &schedule);

// Appends the operations of one run. `outputs_read` is read_outputs(*translation.schedule). The
// error (internal_error) says what is wrong with the schedule.
Done translate(const Translation &translation, StepRun run, const std::vector<bool> &outputs_read,
               std::vector<Op> &ops);

} // namespace qccl
