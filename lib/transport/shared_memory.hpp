// Memory that processes can share and that has no name: whatever way its last user ends, nothing
// remains of it.
#pragma once

#include "base/result.hpp"
#include "base/file_descriptor.hpp"
#include "transport/mapping.hpp"

namespace qccl {

// All of it is there from the start: what cannot be had is an error here and never a SIGBUS later.
Result<FileDescriptor> create_shared_memory(size_t bytes);

// Refuses a file of another size, and one that somebody could shrink under our feet.
Result<Mapping> map_shared_memory(const FileDescriptor &file, size_t bytes);

} // namespace qccl
