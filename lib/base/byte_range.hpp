// A range of bytes in a memory block or a file.
#pragma once

#include <cstddef>

namespace qccl {

struct ByteRange {
    size_t offset = 0, bytes = 0;
};

} // namespace qccl
