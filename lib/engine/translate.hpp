// Translates the steps of a placed schedule into operations on places. Knows no addresses, sizes or
// transports.
#pragma once

#include "base/result.hpp"
#include "engine/homes.hpp"
#include "engine/op.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

struct Translation {
    const Schedule *schedule = nullptr;
    std::span<const Place> homes; // of the accumulators
    DataType type = DataType::float32;
    // Payloads are plain values: of the outermost tier, and of those below.
    bool is_lossless = true, is_inner_lossless = true;
    uint32_t rank = 0;    // whose schedule it is
    bool divides = false; // a finished sum is divided by the number of ranks: avg
};

// The places of outputs that some step reads; what is stored elsewhere may bypass the cache.
std::vector<bool> read_outputs(const Schedule &schedule);

// Appends what the steps of one run do. `outputs_read` is read_outputs(*translation.schedule).
Done translate(const Translation &translation, StepRun run, const std::vector<bool> &outputs_read,
               std::vector<Op> &ops);

} // namespace qccl
