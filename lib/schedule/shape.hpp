// Cuts a collective into segments and lanes, and joins steps that can run together while a tile of
// values is in the cache. The compiler of programs and the planner use it. Pure functions; any
// thread. The geometry depends only on numbers that are equal on all ranks.
#pragma once

#include "base/encoding.hpp"
#include "base/result.hpp"
#include "schedule/layout.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qccl {

// Wire slots start at their own cache line.
inline constexpr size_t wire_alignment = 64;

struct ShapeLimits {
    size_t arena_bytes = 0;   // for what a rank has encoded and peers have not read yet
    uint32_t slots = 1024;    // the most that the arena may be cut into
    size_t segment_bytes = 0; // unencoded bytes that an instance of a step works on; a target
    uint64_t parts = 0; // wanted number of instances, which replaces segment_bytes; 0: none. The
                        // grain limits the number, and a small arena raises it
    uint32_t max_lanes = 1; // instances in flight

    bool operator==(const ShapeLimits &) const = default;
};

// The cut that a caller wants for one call; 0: unspecified.
struct Pieces {
    uint64_t segment_bytes = 0; // of a segment
    uint64_t parts = 0;         // segments of each chunk
    uint32_t lanes = 0;         // segments in flight

    bool operator==(const Pieces &) const = default;
};

// Instance i of the schedule works on segment i of every chunk, in lane i mod lanes.
struct Geometry {
    uint64_t segment = 0;   // elements, a multiple of the layout's grain
    uint64_t instances = 1; // at least one: empty collectives send headers too
    uint32_t lanes = 1;
    size_t wire_bytes = 0;  // from one wire slot of the arena to the next
    size_t arena_bytes = 0; // lanes * outbox * wire_bytes

    bool operator==(const Geometry &) const = default;
};

// Returns the geometry. Segments shrink, but never below the layout's grain, until the own wire
// slots of all lanes fit the arena; after that the number of lanes shrinks. One lane of the
// smallest segments may need more than the arena. There are never more lanes than slots for them.
// The error (invalid_argument) says that one lane needs more slots than there are.
Result<Geometry> cut(const Layout &layout, uint32_t outbox, const Encoding &encoding,
                     const ShapeLimits &limits);

struct Fused {
    Schedule schedule;          // reordered, with Step::joins_next set
    std::vector<bool> is_local; // by chunk: one run of joined steps uses its accumulator, so that a
                                // tile of it is enough
};

// Joins steps that compute on the same chunk into runs, and moves them up where the dependencies
// allow it. A send comes after the run that makes its value. Only for placed schedules.
Fused fuse(const Schedule &placed);

} // namespace qccl
