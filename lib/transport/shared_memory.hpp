// Memory that processes can share and that has no name: whatever way its last user ends, nothing
// remains of it.
#pragma once

#include "base/result.hpp"
#include "base/file_descriptor.hpp"
#include "transport/mapping.hpp"
#include "transport/shared_file.hpp"

#include <cstdint>
#include <functional>

namespace qccl {

// What the kernel says can be had without swapping; SIZE_MAX where it says nothing.
size_t free_memory_bytes();

// All of it is there from the start: what cannot be had is an error here and never a SIGBUS later.
// The name is for those who look at the process from outside.
Result<FileDescriptor> create_shared_memory(size_t bytes, const char *name = "qccl");
// Likewise in a file that there is, in which nothing is yet.
Done allocate_file(int file, size_t bytes);

// Hears how many bytes are yet to be had, before the first of them and as they become fewer. An
// error ends the allocation.
using StillNeeds = std::function<Done(uint64_t bytes)>;

// Makes sure of so many bytes from `offset` on, by which the file grows. An error leaves no memory
// behind.
Done extend_file(int file, size_t offset, size_t bytes, const StillNeeds &still_needs);
// Gives the memory of these bytes back. All processes that have them mapped see zeros from then on.
void empty_file(int file, size_t offset, size_t bytes);

// Refuses a file of another size, and one that somebody could shrink under our feet.
Result<Mapping> map_shared_memory(const FileDescriptor &file, size_t bytes);

// Maps what another process has described, to read it. Fails where the system does not let
// processes look at each other, and where the number means another file by now; opens no such file.
Result<Mapping> map_file_of(int64_t pid, const SharedFile &file);

} // namespace qccl
