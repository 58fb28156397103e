// Where each accumulator of a schedule lives while an instance runs. Knows no addresses.
#pragma once

#include "engine/op.hpp"
#include "schedule/shape.hpp"
#include "schedule/task_graph.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

// `later` must not begin before `earlier` is done.
struct Order {
    uint32_t earlier = 0, later = 0; // runs
    auto operator<=>(const Order &) const = default;
};

struct Homes {
    std::vector<Place> of; // of each chunk's accumulator
    uint32_t tile_buffers = 0;
    uint32_t segment_buffers = 0;
    std::vector<Order> orders; // what sharing a segment's buffer asks for
};

// An accumulator that lives within one run needs a tile; those that live longer share buffers as
// long as segments.
Homes find_homes(const Fused &fused, std::span<const StepRun> runs, bool joins);

} // namespace qccl
