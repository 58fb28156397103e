// What an encoding asks of whoever cuts values into pieces, in numbers. Knows no codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace qccl {

struct Encoding {
    size_t type_bytes = 0;           // of an unencoded value
    bool needs_whole_chunks = false; // a bucket is a chunk: there is one segment
    // The most that up to so many values take, header included.
    std::function<size_t(uint64_t count)> most_bytes;
};

} // namespace qccl
