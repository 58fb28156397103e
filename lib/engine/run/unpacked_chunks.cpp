// Allocates the memory of unpacked chunks where kernels reach it, and keeps it between calls.
#include "engine/run/unpacked_chunks.hpp"

#include <utility>

namespace qccl {

Done UnpackedChunks::prepare(const Device &device, const Program &program) {
    if (program.unpacked_places.empty()) return {};
    if (!scratch_) scratch_ = std::make_unique_for_overwrite<PackScratch>();
    const size_t bytes = program.geometry.lanes * unpacked_bytes(program);
    if (!device.gpu) return grow(memory_, device, bytes);
    if (bytes <= pinned_bytes_) return {};
    pinned_.reset();
    pinned_bytes_ = 0;
    QCCL_TRY(PinnedMemory pinned, PinnedMemory::create(device.gpu, bytes));
    pinned_ = std::make_unique<PinnedMemory>(std::move(pinned));
    pinned_bytes_ = bytes;
    return {};
}

std::byte *UnpackedChunks::at(const Program &program, uint32_t lane, uint32_t wire) const {
    return data() + lane * unpacked_bytes(program) + program.unpacked_places[wire].offset;
}

void UnpackedChunks::give_back(size_t most_kept) {
    if (memory_.bytes() > most_kept) memory_ = {};
    if (pinned_bytes_ > most_kept) {
        pinned_.reset();
        pinned_bytes_ = 0;
    }
}

} // namespace qccl
