// A block of memory from qcclMemAlloc: a file that other processes can map, mapped here, and in its
// first page what it is. Knows no communicator and no other block: whoever asks gives an address.
#pragma once

#include "base/result.hpp"
#include "transport/shared_file.hpp"

#include <cstddef>
#include <cstdint>

namespace qccl {

struct SharedBlock {
    static constexpr uint64_t our_magic = 0x544E454D47455351; // "QSEGMENT"

    uint64_t magic = our_magic;
    SharedFile file{};          // this page and the memory behind it
    uint32_t registrations = 0; // in all communicators; changed with std::atomic_ref

    const std::byte *base() const { return reinterpret_cast<const std::byte *>(this); }
};

// The memory behind the first page.
Result<void *> allocate_block(size_t bytes);
// Refuses what `allocate_block` did not give, as far as can be seen, and what is registered.
Done free_block(void *memory);
// The block in which `bytes` bytes at `buffer` lie.
Result<SharedBlock *> find_block(const void *buffer, size_t bytes);

} // namespace qccl
