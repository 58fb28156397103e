// Memory that processes can share and that has no name, so nothing remains of it however its last
// user ends. Used for segments, overflow memory, blocks and flight records.
#pragma once

#include "base/result.hpp"
#include "base/file_descriptor.hpp"
#include "transport/mapping.hpp"
#include "transport/shared_file.hpp"

#include <cstdint>
#include <functional>

namespace qccl {

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
