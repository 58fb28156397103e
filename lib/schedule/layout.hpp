// Computes where the chunks of a collective lie in the caller's buffers and in the caller's tensor.
// Chunks have equal lengths, except for the last ones. All numbers count elements. The compiler of
// programs, the engine and the verifier use it. Pure functions; any thread.
#pragma once

#include "base/types.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>

namespace qccl {

// A range of elements. `offset` counts from the start of the buffer that holds the range: the
// caller's send or receive buffer, or the chunk's start for other slots. `index` counts from the
// start of the caller's tensor and is equal on all ranks.
struct ElementRange {
    uint64_t offset = 0;
    uint64_t count = 0;
    uint64_t index = 0;

    bool operator==(const ElementRange &) const = default;
};

// Returns true if the caller's buffers on this rank have the slot. A rank has only its own of a
// reduce-scatter's outputs and of an all-gather's inputs, and only the root has a broadcast's
// input. Slots of other kinds always exist.
bool has_slot(Collective collective, const Team &team, Slot slot);

class Layout {
public:
    // `count` is as in the C API: of the whole tensor for all-reduce and broadcast, and of one
    // rank's part for reduce-scatter and all-gather, which have one chunk per rank. Chunks,
    // segments and tiles are cut at multiples of `grain`.
    Layout(Collective collective, uint64_t count, const Team &team, uint32_t chunks,
           uint64_t grain);

    // Returns the elements of a chunk as they lie in `slot`.
    ElementRange range(Slot slot, uint32_t chunk) const;
    // Returns the part of the chunk that one instance works on, for segments of `segment` elements.
    // The part may be empty.
    ElementRange range(Slot slot, uint32_t chunk, uint64_t instance, uint64_t segment) const;

    // Returns the length of the longest chunk.
    uint64_t largest() const;
    uint32_t chunks() const { return chunks_; }
    uint64_t grain() const { return grain_; }

private:
    uint64_t stride_; // from the start of one chunk to the start of the next
    uint64_t total_;  // elements of the tensor
    uint64_t grain_;
    uint32_t chunks_;
    uint64_t input_base_ = 0;  // index of the first element of the send buffer
    uint64_t output_base_ = 0; // index of the first element of the receive buffer
};

} // namespace qccl
