// Computes where the chunks of a collective lie in the caller's buffers and in the caller's tensor,
// cuts the collective into segments and lanes, and joins steps that can run together while a tile
// of values is in the cache. Chunks have equal lengths, except for the last ones. The geometry
// depends only on numbers that are equal on all ranks. The compiler of programs, the engine, the
// planner and the verifier use it. Pure functions; any thread.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace qccl {

// ---- Where chunks lie

// A range of elements. `offset` counts from the start of the buffer that holds the range: the
// caller's send or receive buffer, or the chunk's start for other slots. `index` counts from the
// start of the caller's tensor and is equal on all ranks.
struct ElementRange {
    uint64_t offset = 0;
    uint64_t count = 0;
    uint64_t index = 0;

    bool operator==(const ElementRange &) const = default;
};

// Whether the rank contributes values, and whether it has a result: of some collectives only the
// root does, or the rank after it, and no rank comes before rank 0.
bool has_input(Collective collective, const Team &team);
bool has_output(Collective collective, const Team &team);
// Returns true if the caller's buffers on this rank have the slot. Where a collective scatters or
// gathers, a rank has only its own of the outputs or of the inputs. Slots of other kinds always
// exist.
bool has_slot(Collective collective, const Team &team, Slot slot);

// The parts of a v-form as one rank knows them, each where it lies in the caller's buffers. By
// rank: part r of `sent` is the one that belongs to, or goes to, rank r, and part r of `received`
// the one that comes from it. Parts that the rank does not know are empty.
struct VFormParts {
    struct PartRange {
        uint64_t start = 0, count = 0; // in elements
        bool operator==(const PartRange &) const = default;
    };

    Collective v_form = all_gather_v;
    std::vector<PartRange> sent, received;

    // Whether all ranks have the same counts; `sent` and `received` then agree in them.
    bool are_common() const { return are_counts_common(v_form); }
    // Returns the sum of all counts if they are common, else 0.
    uint64_t common_total() const;
    // Returns a hash of all counts if they are common, else 0.
    uint32_t common_hash() const;
    bool operator==(const VFormParts &) const = default;
};

// Return the end, in elements, of what this rank has of the caller's buffer; 0: it has nothing.
uint64_t sent_end(const VFormParts &parts, const Team &team);
uint64_t received_end(const VFormParts &parts, const Team &team);

class Layout {
public:
    // `count` is as in the C API: of the whole tensor, or of one rank's part for collectives that
    // scatter, gather or exchange parts, which have one chunk per rank. Chunks, segments and tiles
    // are cut at multiples of `grain`. `spacing`: of the parts of all ranks in the caller's
    // buffers, from start to start; 0: they follow one another.
    Layout(Collective collective, uint64_t count, const Team &team, uint32_t chunks, uint64_t grain,
           uint64_t spacing = 0);
    // The layout of a v-form, with a chunk for each part. Wire slots below `outbox` hold parts that
    // are sent.
    Layout(std::shared_ptr<const VFormParts> parts, const Team &team, uint32_t outbox,
           uint64_t grain);

    // Returns the elements of a chunk as they lie in `slot`.
    ElementRange range(Slot slot, uint32_t chunk) const;
    // Returns the part of the chunk that one instance works on, for segments of `segment` elements.
    // The part may be empty.
    ElementRange range(Slot slot, uint32_t chunk, uint64_t instance, uint64_t segment) const;
    // Returns false if the chunk has ended before that segment. Where only the two ends of a
    // message know the chunk's count, its last segment is shorter than the others, and may be
    // empty: so a receiver that expects another count finds out. No other segments follow. All
    // other chunks have as many segments as the longest one.
    bool has_segment(Slot slot, uint32_t chunk, uint64_t instance, uint64_t segment) const;

    // Returns the length of the longest chunk.
    uint64_t largest() const;
    // Whether only the two ends of a message know its chunk's count.
    bool is_pairwise() const { return parts_ && !parts_->are_common(); }
    uint32_t chunks() const { return chunks_; }
    uint64_t grain() const { return grain_; }

private:
    const VFormParts::PartRange &part_of(Slot slot, uint32_t chunk) const;

    uint64_t stride_ = 0; // from the start of one chunk to the start of the next; of v-forms the
                          // length of the longest chunk
    uint64_t total_ = 0;  // elements of the tensor
    uint64_t grain_;
    uint32_t chunks_;
    // Of parts of ranks: from the start of one to the start of the next in each of the caller's
    // buffers; 0: the buffer has this rank's part alone.
    bool has_parts_ = false;
    uint64_t input_spacing_ = 0, output_spacing_ = 0;
    // Where ranks exchange parts, a chunk lies in both buffers at the part of the partner.
    std::optional<Team> exchanging_;
    std::shared_ptr<const VFormParts> parts_; // null: no v-form
    std::vector<uint64_t> indices_; // of v-forms with common counts: index of each chunk's start
    uint32_t outbox_ = 0;           // of v-forms
};

// ---- Segments, lanes and runs

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
// Where only the two ends of a message know its count, the segment does not depend on counts.
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
