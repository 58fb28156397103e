// A block of memory that lies in a file of its own, which other processes can map, and that says in
// its first page what it is. Knows no communicator and no other block: whoever asks gives an
// address.
#pragma once

#include "base/result.hpp"
#include "transport/shared_file.hpp"

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
    // From an address in it to its end.
    uint64_t rest(const void *address) const {
        return file.bytes -
               (reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(this));
    }
    bool is_registered() {
        return std::atomic_ref(registrations).load(std::memory_order_acquire) != 0;
    }
};

// The memory behind the first page, of most_block_bytes() at most.
Result<void *> allocate_block(size_t bytes);
size_t most_block_bytes();
void free_block(SharedBlock &block);

// The block whose memory begins there; null: none, as far as can be seen. Fails where nothing can
// be seen.
Result<SharedBlock *> block_at(void *memory);
// The block in whose memory the address lies.
Result<SharedBlock *> block_around(const void *address);

} // namespace qccl
