// Checks that a received chunk is the chunk that the schedule expects. The engine reads no chunk
// before this check. Pure functions; any thread.
#pragma once

#include "base/result.hpp"
#include "codec/chunk.hpp"
#include "schedule/layout.hpp"

#include <cstddef>
#include <span>

namespace qccl {

struct ExpectedChunk {
    const Codec *codec = nullptr;
    DataType type = DataType::float32;
    uint64_t count = 0;
    uint64_t index = 0; // of the first element, in the caller's tensor
    uint32_t from = 0;  // the rank that sent it
    // The chunk must carry a valid CRC32C.
    bool has_checksum = false;
};

// A payload that does not lie behind its header. `bytes` is the memory that may be read from there
// on, perhaps more than the payload.
struct LentPayload {
    std::span<const std::byte> bytes{};
    bool is_out_of_sight = false; // the host cannot read it
};

// Checks the chunk in `bytes`, and its payload in `lent` if that is set. The error (damaged_data)
// names the sending rank and what differs.
Done inspect(std::span<const std::byte> bytes, const ExpectedChunk &expected,
             const LentPayload &lent = {});

} // namespace qccl
