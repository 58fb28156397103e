// Memory for the chunks of a call that packs them (Program::packs), as kernels write and read them:
// one place for each wire slot of a lane. A chunk is packed into its wire slot when it has been
// encoded, and unpacked when it has been received; a rank that passes it on sends the packed bytes
// as they came. On a GPU the memory is the host's, and the GPU reaches it. The engine uses it, on
// one thread; nothing waits for other ranks.
#pragma once

#include "base/result.hpp"
#include "device/device.hpp"
#include "engine/compile/program.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace qccl {

class UnpackedChunks {
public:
    // Makes the memory hold the chunks of the program's lanes. Between calls. An error is the
    // operating system's or the GPU's.
    Done prepare(const Device &device, const Program &program);
    // Returns the memory of the chunk in a wire slot of the lane.
    std::byte *at(const Program &program, uint32_t lane, uint32_t wire) const;

    // What packing and unpacking work in, once memory has been prepared.
    PackScratch &scratch() const { return *scratch_; }
    size_t bytes() const { return memory_.bytes() + pinned_bytes_; }
    // Frees memory of more than `most_kept` bytes.
    void give_back(size_t most_kept);

private:
    std::byte *data() const { return pinned_ ? pinned_->data() : memory_.data(); }

    DeviceMemory memory_; // of the host
    std::unique_ptr<PinnedMemory> pinned_;
    size_t pinned_bytes_ = 0;
    std::unique_ptr<PackScratch> scratch_;
};

} // namespace qccl
