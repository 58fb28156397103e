// Memory in files without a name, which processes can share and of which nothing remains however
// its last user ends: how a file is described to other processes, how it is mapped, and how its
// memory is allocated. Segments, overflow memory, windows, flight records and the blocks of
// qcclMemAlloc lie in such memory. Any thread may call; a Mapping belongs to one thread at a time.
// Allocation takes as long as the kernel needs to find the memory; nothing waits for other
// processes.
#pragma once

#include "base/result.hpp"
#include "base/system.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include <sys/mman.h>

namespace qccl {

// ---- Files and their description

// The identity and size of an open file.
struct SharedFile {
    uint64_t device = 0, inode = 0;
    uint64_t bytes = 0;
    int32_t number = -1; // its descriptor in the process that has it open

    bool operator==(const SharedFile &) const = default;
};

// Describes an open file of this process. Returns system_error if `file` cannot be examined.
Result<SharedFile> describe(int file);
// Returns whether the file's descriptor still refers to this file in this process. A program may
// close descriptors that it does not know, and then another file gets the number.
bool is_open(const SharedFile &file);

// Memory of this process that lies in a file, so that other processes can map it.
struct ExportedRegion {
    const std::byte *base = nullptr; // where the whole file is mapped
    SharedFile file{};               // if its number names another file by now, nothing is exposed
};

// ---- Mappings

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

    // Takes the page faults of the first `bytes` now rather than in the first calls, if the kernel
    // can.
    void populate(size_t bytes) const;

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

// Memory that stays mapped as long as a copy of `keeper` is held.
struct MappedMemory {
    std::shared_ptr<const void> keeper;
    std::span<std::byte> bytes;
};

// ---- Shared memory

size_t page_bytes(); // of this system
// The memory that the kernel says can be had without swapping; SIZE_MAX if it says nothing.
size_t free_memory_bytes();

// Returns a file of that size, which cannot shrink. All of its memory is allocated at once: a lack
// of memory is an error here (system_error) and never a SIGBUS later. `name` is shown to tools that
// look at the process.
Result<FileDescriptor> create_shared_memory(size_t bytes, const char *name = "qccl");
// Allocates memory in the same way for an existing file that has no contents yet.
Done allocate_file(int file, size_t bytes);

// Called with the number of bytes yet to be allocated, before the first of them and as they become
// fewer. An error ends the allocation.
using StillNeeds = std::function<Done(uint64_t bytes)>;

// Allocates `bytes` bytes from `offset` on, by which the file grows. After an error, none of this
// memory stays allocated.
Done extend_file(int file, size_t offset, size_t bytes, const StillNeeds &still_needs);
// Gives the memory of these bytes back to the system. All processes that have them mapped see zeros
// from then on.
void empty_file(int file, size_t offset, size_t bytes);

// Returns system_error if the file has another size or could be shrunk while it is mapped.
Result<Mapping> map_shared_memory(const FileDescriptor &file, size_t bytes);

// Maps a file that another process has described, for reading. Returns system_error if the system
// does not let processes look at each other, or if the number names another file by now; that other
// file is not opened.
Result<Mapping> map_file_of(int64_t pid, const SharedFile &file);

} // namespace qccl
