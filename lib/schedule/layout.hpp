// Where the chunks of a collective lie in the caller's buffers and in the caller's tensor:
// chunks are equal but for the last ones. Counts elements, never bytes; knows no steps.
#pragma once

#include "base/types.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>

namespace qccl {

// A range of elements. `offset` counts from the start of the buffer that holds it (the caller's
// send or receive buffer; for other slots from the chunk's start), `index` from the start of the
// caller's tensor, equal on all ranks.
struct ElementRange {
    uint64_t offset = 0;
    uint64_t count = 0;
    uint64_t index = 0;

    bool operator==(const ElementRange &) const = default;
};

// Whether the caller's buffers of this rank have the slot: of a reduce-scatter's outputs and an
// all-gather's inputs a rank has its own alone, and only the root has a broadcast's input. Slots of
// other kinds are always there.
bool has_slot(Collective collective, const Team &team, Slot slot);

class Layout {
public:
    // `count` as the C API means it: of the whole tensor for all-reduce and broadcast, of one
    // rank's part of it for reduce-scatter and all-gather, which have a chunk for each rank.
    // `grain` is what chunks, segments and tiles are cut at multiples of.
    Layout(Collective collective, uint64_t count, const Team &team, uint32_t chunks,
           uint64_t grain);

    // The elements of a chunk as they lie in `slot`.
    ElementRange range(Slot slot, uint32_t chunk) const;
    // The part of it that one instance works on, if segments have `segment` elements. May be empty.
    ElementRange range(Slot slot, uint32_t chunk, uint64_t instance, uint64_t segment) const;

    // The longest chunk's elements.
    uint64_t largest() const;
    uint32_t chunks() const { return chunks_; }
    uint64_t grain() const { return grain_; }

private:
    uint64_t stride_; // from the start of one chunk to the start of the next
    uint64_t total_;  // elements of the tensor
    uint64_t grain_;
    uint32_t chunks_;
    uint64_t input_base_ = 0;  // index of the first element of the send buffer
    uint64_t output_base_ = 0; // and of the receive buffer
};

} // namespace qccl
