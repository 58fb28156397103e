// Decides where each accumulator of a schedule lives while an instance runs: in a tile or in a
// segment buffer. The compiler of programs uses it. A pure function; any thread.
#pragma once

#include "engine/op.hpp"
#include "schedule/shape.hpp"
#include "schedule/task_graph.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

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

} // namespace qccl
