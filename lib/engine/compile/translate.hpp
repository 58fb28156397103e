// The passes that make operations of a placed schedule: place_accumulators decides where each
// accumulator lives while an instance runs, in a tile or in a segment buffer; find_lendable finds
// the values that a rank sends and that also lie in the caller's buffers, so that peers can read
// them there (zero copy) instead of in the outbox; translate turns steps into operations on
// operands without addresses. The compiler of programs uses them. Pure functions of one rank's
// schedule; any thread.
#pragma once

#include "base/result.hpp"
#include "engine/compile/ops.hpp"
#include "schedule/lower.hpp"
#include "schedule/schedule.hpp"
#include "schedule/shape.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace qccl {

// ---- Places of accumulators

// The run `later` must not begin before the run `earlier` is done.
struct Order {
    uint32_t earlier = 0, later = 0; // numbers of runs
    auto operator<=>(const Order &) const = default;
};

struct AccumulatorPlacement {
    std::vector<OperandRef> of; // by chunk: where its accumulator lives
    uint32_t tile_buffers = 0;
    uint32_t segment_buffers = 0;
    std::vector<Order> orders; // dependencies that come from sharing segment buffers
};

// Places all accumulators. One that lives within one run gets a tile, if `joins` is set; one that
// lives longer gets a buffer as long as a segment, which accumulators that do not overlap share.
// `runs` must be the runs of `fused.schedule`.
AccumulatorPlacement place_accumulators(const Fused &fused, std::span<const StepRun> runs,
                                        bool joins);

// ---- Zero copy

// Where peers can read what one encode writes, if the encode only copies values.
struct Lendable {
    std::optional<uint32_t> input; // chunk of the input that holds the value
    // Peers may read the input also if the output lies in the same memory. A run that writes the
    // output there has to wait for the readers.
    bool also_in_place = false;
    // Chunk of the output that the same run stores the value in, and that no other step writes.
    std::optional<uint32_t> output;
    uint32_t readers = 0; // runs of this rank that read the wire slot, sends included
};

// Returns the result for each encode, by its Step::ordinal. The schedule must be placed; the engine
// issues each of `runs` as a whole.
std::vector<Lendable> find_lendable(const Schedule &schedule, std::span<const StepRun> runs);

// ---- Steps to operations

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
