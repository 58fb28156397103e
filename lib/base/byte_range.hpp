// A part of some memory or file.
#pragma once

#include <cstddef>

namespace qccl {

struct ByteRange {
    size_t offset = 0, bytes = 0;
};

} // namespace qccl
