// Tells how much memory this machine has left. Used by qccl-perf before it allocates buffers. Any
// thread.
#pragma once

#include <cstdint>
#include <optional>

namespace qccl::perf {

// Returns the memory, in bytes, that programs can get without swapping other programs out, or
// nothing if the system does not tell.
std::optional<uint64_t> available_memory_bytes();

} // namespace qccl::perf
