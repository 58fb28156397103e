// Checks of arguments that many C functions share. Each error names the argument and quotes the
// offending value. Any thread may call these functions; nothing blocks.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <qccl/qccl.h>

#include <cstdint>

namespace qccl {

struct Buffer {
    const char *name; // of the argument, as the C header calls it
    const void *start;
    size_t bytes;
};

// Convert a C value. Any other number gives invalid_argument, which states the possible range.
Result<DataType> take_type(qcclDataType_t type);
Result<RedOp> take_op(qcclRedOp_t op);
// Checks that memory can hold `times` blocks of `count` values of `type`. `argument` is the count's
// name in the error (invalid_argument).
Done check_count(const char *argument, size_t count, DataType type, uint32_t times);
// The errors (invalid_argument) that the two checks below return.
Error missing(const Buffer &buffer);
Error overlap(const Buffer &a, const Buffer &b);
// Refuses NULL, unless the buffer has 0 bytes.
inline Done check_pointer(const Buffer &buffer) {
    if (buffer.start || buffer.bytes == 0) return {};
    return missing(buffer);
}
// Refuses two buffers that share a byte.
inline Done check_apart(const Buffer &a, const Buffer &b) {
    const auto a_start = reinterpret_cast<uintptr_t>(a.start);
    const auto b_start = reinterpret_cast<uintptr_t>(b.start);
    if (a.bytes == 0 || b.bytes == 0) return {};
    // Distances are compared, so that a buffer at the end of the address space cannot wrap.
    const bool is_apart =
        a_start <= b_start ? b_start - a_start >= a.bytes : a_start - b_start >= b.bytes;
    if (is_apart) return {};
    return overlap(a, b);
}

} // namespace qccl
