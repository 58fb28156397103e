// How much memory this machine has left.
#pragma once

#include <cstdint>
#include <optional>

namespace qccl::perf {

// What programs can have without anybody being pushed out; nothing where the system does not say.
std::optional<uint64_t> available_memory_bytes();

} // namespace qccl::perf
