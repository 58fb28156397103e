// Copies the values of fused calls into their shared vector and the results back, and fills up the
// last block of each call.
#include "api/group/fusion_buffer.hpp"

#include "base/sizes.hpp"

#include <algorithm>
#include <cstring>

namespace qccl {

// A part in one chunk: `bytes` of the caller's buffer from `callers` on, which lie at `shared` in
// the vector, where the part has `room`.
struct FusionBuffer::PartInChunk {
    size_t callers = 0, shared = 0, bytes = 0, room = 0;
};

template <class Each> void FusionBuffer::each_piece(bool has_own_alone, Each each) const {
    const uint32_t first = has_own_alone ? shape_.rank : 0;
    const uint32_t end = has_own_alone ? shape_.rank + 1 : shape_.chunks;
    for (const FusedPart &part : parts_) {
        const size_t room = round_up(part.chunk_bytes, shape_.step_bytes);
        for (uint32_t chunk = first; chunk < end; chunk++) {
            const size_t begin = std::min(part.bytes, chunk * part.chunk_bytes);
            each(part, PartInChunk{.callers = has_own_alone ? 0 : chunk * part.chunk_step,
                                   .shared = chunk * chunk_bytes_ + part.offset,
                                   .bytes = std::min(part.chunk_bytes, part.bytes - begin),
                                   .room = room});
        }
    }
}

void FusionBuffer::fill_up(std::byte *start, size_t bytes, size_t room) const {
    const size_t end = shape_.repeats_last && bytes > 0 ? room : bytes;
    for (size_t at = bytes; at < end; at += shape_.value_bytes)
        std::memcpy(start + at, start + at - shape_.value_bytes, shape_.value_bytes);
    std::memset(start + end, 0, room - end);
}

void FusionBuffer::copy_in() const {
    each_piece(shape_.gathers, [this](const FusedPart &part, const PartInChunk &piece) {
        std::byte *const start = memory_.data() + piece.shared;
        // A call of no values may have no buffers.
        if (piece.bytes > 0)
            std::memcpy(start, static_cast<const std::byte *>(part.send) + piece.callers,
                        piece.bytes);
        if (piece.bytes < piece.room) fill_up(start, piece.bytes, piece.room);
    });
    for (uint32_t chunk = 0; chunk < shape_.chunks; chunk++)
        std::memset(memory_.data() + chunk * chunk_bytes_ + used_bytes_, 0,
                    chunk_bytes_ - used_bytes_);
}

void FusionBuffer::copy_out() const {
    each_piece(shape_.scatters, [this](const FusedPart &part, const PartInChunk &piece) {
        std::byte *const callers = static_cast<std::byte *>(part.recv) + piece.callers;
        const bool is_there = shape_.gathers && shape_.keeps_own && callers == part.send;
        if (piece.bytes > 0 && !is_there)
            std::memcpy(callers, memory_.data() + piece.shared, piece.bytes);
    });
}

} // namespace qccl
