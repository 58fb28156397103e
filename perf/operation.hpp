// One collective in the terms of nccl-tests: the elements of each buffer for a size in bytes, the
// positions of in-place buffers, and the conversion from time to bandwidth. Any thread; nothing
// blocks.
#pragma once

#include "base/types.hpp"

#include <cstddef>
#include <cstdint>

namespace qccl::perf {

struct Operation {
    Collective collective = Collective::all_reduce;
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t root = 0;
    uint32_t ranks = 1;
    uint64_t count = 0; // the count argument of the call

    bool operator==(const Operation &) const = default;
    uint64_t send_count() const;
    uint64_t recv_count() const;
    // The size column: bytes of the larger buffer.
    uint64_t bytes() const;
    // In place, rank r's part starts at r * stride elements in the larger buffer.
    uint64_t send_in_place_stride() const;
    uint64_t recv_in_place_stride() const;

    double algbw(double seconds) const; // GB/s, GB = 1e9
    double busbw(double seconds) const;
};

// Returns the largest call whose buffers have at most `bytes` bytes. All-gather and reduce-scatter
// give each rank a multiple of 16 bytes, as nccl-tests does.
Operation operation_of(Collective collective, DataType type, RedOp op, uint32_t root,
                       uint32_t ranks, uint64_t bytes);

} // namespace qccl::perf
