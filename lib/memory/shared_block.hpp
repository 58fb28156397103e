// Blocks of memory that users of the library allocate, each in a file without a name, so that peers
// can map it. A page before the memory describes the block. qcclMemAlloc, qcclMemFree and the
// registration of memory use blocks. Any thread may call. Allocation takes as long as the kernel
// needs to find the memory; nothing waits for other ranks.
#pragma once

#include "base/result.hpp"
#include "base/shared_memory.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace qccl {

struct SharedBlock {
    static constexpr uint64_t our_magic = 0x4B434F4C424C4351; // "QCLBLOCK"

    uint64_t magic = our_magic;
    SharedFile file{};          // this page and the memory behind it
    uint32_t registrations = 0; // in all communicators; changed with std::atomic_ref

    const std::byte *base() const { return reinterpret_cast<const std::byte *>(this); }
    // Bytes from an address in the block to its end.
    uint64_t rest(const void *address) const {
        return file.bytes -
               (reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(this));
    }
    bool is_registered() {
        return std::atomic_ref(registrations).load(std::memory_order_acquire) != 0;
    }
};

// Returns the memory behind the first page. `bytes` is at most most_block_bytes(). Returns
// system_error if the memory cannot be had.
Result<void *> allocate_block(size_t bytes);
size_t most_block_bytes();
void free_block(SharedBlock &block);

// Returns the block whose memory begins at this address; null if no block can be seen there.
// Returns system_error if the process cannot look at its memory.
Result<SharedBlock *> block_at(void *memory);
// Returns the block in whose memory the address lies; null and errors as for block_at.
Result<SharedBlock *> block_around(const void *address);

} // namespace qccl
