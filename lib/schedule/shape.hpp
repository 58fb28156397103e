// Cuts a collective into lanes and segments, and joins steps that can run together while a tile of
// values is in the cache. Geometry depends only on numbers that are equal on all ranks.
#pragma once

#include "base/encoding.hpp"
#include "base/result.hpp"
#include "schedule/layout.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qccl {

// Wire slots start at a cache line of their own.
inline constexpr size_t wire_alignment = 64;

struct ShapeLimits {
    size_t arena_bytes = 0;   // for what a rank has encoded and peers have not yet read
    uint32_t slots = 1024;    // that the arena may be cut into
    size_t segment_bytes = 0; // of unencoded values that one instance of a step works on; a target
    uint64_t parts = 0;       // 0, or how many instances there shall be; then segment_bytes is not
                              // heard. As many as the grain allows, and more if the arena is small
    uint32_t max_lanes = 1;   // instances in flight

    bool operator==(const ShapeLimits &) const = default;
};

// Into what somebody wants one call cut; 0: not said.
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

// Segments shrink, never below the layout's grain, until a rank's own wire slots of all lanes fit
// the arena; then lanes are given up. One lane of the smallest segments may need more than the
// arena. There are no more lanes than slots for them; an error says that one lane needs more.
Result<Geometry> cut(const Layout &layout, uint32_t outbox, const Encoding &encoding,
                     const ShapeLimits &limits);

struct Fused {
    Schedule schedule;          // reordered, Step::joins_next set
    std::vector<bool> is_local; // of each chunk's accumulator: it lives within one run of joined
                                // steps, so that a tile of it is enough
};

// Joins steps that compute on the same chunk into runs, moving them up where dependencies allow; a
// send comes after the run that makes what it sends. Only for placed schedules.
Fused fuse(const Schedule &placed);

} // namespace qccl
