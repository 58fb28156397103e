// Whether a chunk that came is the one that the schedule says comes here: after this it may be
// read.
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
    uint64_t index = 0; // of the first element in the caller's tensor
    uint32_t from = 0;  // the rank that gave it
    bool is_sealed = false;
};

// Where the payload begins if it does not lie behind the header, as far as one may read.
struct LentPayload {
    std::span<const std::byte> bytes{};
    bool is_out_of_sight = false; // the host cannot read it
};

Done inspect(std::span<const std::byte> bytes, const ExpectedChunk &expected,
             const LentPayload &lent = {});

} // namespace qccl
