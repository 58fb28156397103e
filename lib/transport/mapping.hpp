// Memory that mmap has mapped and that is unmapped with its owner. Used for segments, overflow
// memory, windows and record files. Any thread may call; a Mapping belongs to one thread at a time.
#pragma once

#include "base/result.hpp"

#include <cstddef>
#include <sys/mman.h>
#include <utility>

namespace qccl {

class Mapping {
public:
    Mapping() = default;
    Mapping(Mapping &&other) noexcept
        : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Mapping &operator=(Mapping &&other) noexcept {
        std::swap(base_, other.base_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Mapping() {
        if (base_) munmap(base_, bytes_);
    }

    // Maps zeroed memory of this process, which takes up memory where it is written. This and the
    // next three return system_error if the system refuses the mapping.
    static Result<Mapping> anonymous(size_t bytes);
    // Maps `bytes` of a file from `offset` on, shared with other processes that map the file.
    static Result<Mapping> shared(int file, size_t bytes, size_t offset = 0);
    // Maps the first `bytes` of such a file, for reading only.
    static Result<Mapping> shared_to_read(int file, size_t bytes);
    // Maps once more `bytes` of a shared file from `mapped` on, which is where a page of an
    // existing mapping begins. `bytes` may reach beyond that mapping and beyond the end of the
    // file: see `is_backed`.
    static Result<Mapping> again(std::byte *mapped, size_t bytes);

    // Returns whether the file reaches the last byte. If not, reading that byte would raise SIGBUS.
    bool is_backed() const;

    // Takes the page faults now rather than in the first calls, if the kernel can.
    void populate() const;

    std::byte *base() const { return base_; }
    size_t bytes() const { return bytes_; }
    // Gives up ownership: the caller must unmap the memory.
    std::byte *release() { return std::exchange(base_, nullptr); }

private:
    static Result<Mapping> map(size_t bytes, int flags, int file, int protection,
                               size_t offset = 0);
    static Result<Mapping> mapping_at(void *base, size_t bytes);

    std::byte *base_ = nullptr;
    size_t bytes_ = 0;
};

} // namespace qccl
