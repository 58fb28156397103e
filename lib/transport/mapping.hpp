// Memory from mmap that is unmapped with its owner.
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

    // Zeros of this process, which cost memory where they are written.
    static Result<Mapping> anonymous(size_t bytes);
    // The whole of a file that several processes map.
    static Result<Mapping> shared(int file, size_t bytes, size_t offset = 0);
    static Result<Mapping> shared_to_read(int file, size_t bytes);
    // Of the file that is mapped, shared, at the start of a page: so many bytes from there on,
    // which may be more than that mapping has, and more than the file has: see `is_backed`.
    static Result<Mapping> again(std::byte *mapped, size_t bytes);

    // Whether the file reaches the last byte. If not, to read that byte would raise SIGBUS.
    bool is_backed() const;

    // Takes the page faults now rather than in the first calls, where the kernel can.
    void populate() const;

    std::byte *base() const { return base_; }
    size_t bytes() const { return bytes_; }
    // Whose it is from now on must unmap it.
    std::byte *release() { return std::exchange(base_, nullptr); }

private:
    static Result<Mapping> map(size_t bytes, int flags, int file, int protection,
                               size_t offset = 0);
    static Result<Mapping> mapping_at(void *base, size_t bytes);

    std::byte *base_ = nullptr;
    size_t bytes_ = 0;
};

} // namespace qccl
