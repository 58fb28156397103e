// One collective as nccl-tests sees it: how many elements each buffer has for a size in bytes,
// where the in-place buffers lie, and how time becomes bandwidth. Pure.
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
    uint64_t count = 0; // the argument of the call

    bool operator==(const Operation &) const = default;
    uint64_t send_count() const;
    uint64_t recv_count() const;
    // The size column: the larger buffer's bytes.
    uint64_t bytes() const;
    // Of rank r's own part inside the other buffer, in-place: r * this, in elements.
    uint64_t send_in_place_stride() const;
    uint64_t recv_in_place_stride() const;

    double algbw(double seconds) const; // GB/s, GB = 1e9
    double busbw(double seconds) const;
};

// The largest call whose buffers have at most `bytes` bytes. All-gather and reduce-scatter give
// each rank a multiple of 16 bytes, as nccl-tests does.
Operation operation_of(Collective collective, DataType type, RedOp op, uint32_t root,
                       uint32_t ranks, uint64_t bytes);

} // namespace qccl::perf
