// CRC32C (Castagnoli, RFC 3720 appendix B.4): what a sealed chunk carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

// Goes on from `crc`, the checksum of what came before; 0 at the start.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc = 0);

} // namespace qccl
