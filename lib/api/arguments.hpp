// Arguments that many functions share, checked by name, with the offending value in the sentence.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"

#include <qccl/qccl.h>

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
// NULL only where there is nothing to point to.
Done check_pointer(const Buffer &buffer);
// The two share no byte.
Done check_apart(const Buffer &a, const Buffer &b);

} // namespace qccl
