// CRC32C (Castagnoli, RFC 3720 appendix B.4), the checksum of a chunk. Pure; any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

// Returns the checksum of `bytes`. `crc` is the checksum of the bytes before them; 0 at the start.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

} // namespace qccl
