// The memory of a fused call: where the values of each of its calls lie in the vector that all of
// them share, and the copies from the callers' buffers and back. The vector consists of chunks, as
// the algorithm has them, and each chunk of the calls' chunks of that number, one behind the other.
// So every value lies in the chunk that it has in a call of its own. Used by FusedCall, and by the
// thread that runs the call; nothing here waits for other ranks.
#pragma once

#include "comm/comm.hpp"
#include "comm/comm_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace qccl {

// What the copies have to know of the collective. All sizes here are in bytes.
struct FusedShape {
    uint32_t chunks = 1;
    uint32_t rank = 0;
    // In an all-gather a rank gives its own chunk alone, in a reduce-scatter it gets that alone.
    bool gathers = false, scatters = false;
    size_t value_bytes = 1;
    // In each chunk the calls begin at multiples of this, as blocks of a codec do. Blocks that the
    // caller's values do not fill are filled with zeros, which are not the largest values of any
    // block. If a scale depends on the smallest value, too, they are filled with the last value.
    size_t step_bytes = 1;
    bool repeats_last = false;
    // A rank's own part of an all-gather comes back as the caller gave it. In place it is there
    // already, and is not written.
    bool keeps_own = false;
};

// One of the calls.
struct FusedPart {
    const void *send = nullptr;
    void *recv = nullptr;
    size_t bytes = 0;       // of the call's vector, all chunks together
    size_t chunk_bytes = 0; // of a chunk of the call; the last ones may be shorter
    size_t chunk_step = 0;  // from chunk to chunk of the caller's vector, which may have gaps
    size_t offset = 0;      // of the call in each chunk of the shared vector
};

class FusionBuffer final : public CallCopies {
public:
    // `chunk_bytes`: of a chunk of the shared vector, which `memory` holds. The parts end at
    // `used_bytes` of it.
    FusionBuffer(const FusedShape &shape, std::vector<FusedPart> parts, size_t used_bytes,
                 size_t chunk_bytes, ScratchMemory::Use memory)
        : shape_(shape), parts_(std::move(parts)), used_bytes_(used_bytes),
          chunk_bytes_(chunk_bytes), memory_(std::move(memory)) {}

    // The buffers of the fused call, which is in place.
    const void *send() const { return shape_.gathers ? own_chunk() : memory_.data(); }
    void *recv() const { return shape_.scatters ? own_chunk() : memory_.data(); }

    void copy_in() const override;
    void copy_out() const override;

private:
    struct PartInChunk;
    std::byte *own_chunk() const { return memory_.data() + shape_.rank * chunk_bytes_; }
    // Calls each(part, piece) for every chunk of every part that one of the caller's buffers has.
    template <class Each> void each_piece(bool has_own_alone, Each each) const;
    void fill_up(std::byte *start, size_t bytes, size_t room) const;

    const FusedShape shape_;
    const std::vector<FusedPart> parts_;
    const size_t used_bytes_, chunk_bytes_;
    const ScratchMemory::Use memory_;
};

} // namespace qccl
