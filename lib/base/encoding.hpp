// An encoding in numbers, for code that cuts vectors into pieces. The codecs fill it
// (codec/chunk.hpp); the schedules' shapes read it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace qccl {

struct Encoding {
    size_t type_bytes = 0;           // of an unencoded value
    bool needs_whole_chunks = false; // a bucket is a whole chunk: there is only one segment
    // Returns the most bytes that a chunk of up to `count` values takes, header included.
    std::function<size_t(uint64_t count)> most_bytes;
};

} // namespace qccl
