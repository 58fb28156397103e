// Arguments that many functions share, checked by name, with the offending value in the sentence.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <qccl/qccl.h>

#include <cstdint>

namespace qccl {

struct Buffer {
    const char *name; // of the argument
    const void *start;
    size_t bytes;
};

Result<DataType> take_type(qcclDataType_t type);
Result<RedOp> take_op(qcclRedOp_t op);
// `times` blocks of `count` elements must have a size that memory can have.
Done check_count(const char *argument, size_t count, DataType type, uint32_t times);
// What the next two say of buffers that are wrong.
Error missing(const Buffer &buffer);
Error overlap(const Buffer &a, const Buffer &b);
// NULL only where there is nothing to point to.
inline Done check_pointer(const Buffer &buffer) {
    if (buffer.start || buffer.bytes == 0) return {};
    return missing(buffer);
}
// The two share no byte.
inline Done check_apart(const Buffer &a, const Buffer &b) {
    const auto a_start = reinterpret_cast<uintptr_t>(a.start);
    const auto b_start = reinterpret_cast<uintptr_t>(b.start);
    if (a.bytes == 0 || b.bytes == 0) return {};
    // Compared by distance, so that a buffer at the end of the address space cannot wrap.
    const bool is_apart =
        a_start <= b_start ? b_start - a_start >= a.bytes : a_start - b_start >= b.bytes;
    if (is_apart) return {};
    return overlap(a, b);
}

} // namespace qccl
