// Implements the argument checks of arguments.hpp, which words every error in one place.
#include "api/arguments.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdint>

namespace qccl {

Result<DataType> take_type(qcclDataType_t type) {
    if (const auto known = to_type(type)) return *known;
    return Error::make(Code::invalid_argument,
                       "type is %" PRId32 "; possible are 0 (qcclInt8) to %zu (qcclFloat8e5m2)",
                       type, type_table.size() - 1)
        .compared(0, type);
}

Result<RedOp> take_op(qcclRedOp_t op) {
    if (const auto known = to_op(op)) return *known;
    return Error::make(Code::invalid_argument,
                       "op is %" PRId32 "; possible are 0 (qcclSum) to %zu (qcclAvg)", op,
                       op_names.size() - 1)
        .compared(0, op);
}

Done check_count(const char *argument, size_t count, DataType type, uint32_t times) {
    // An address space cannot hold 2^56 values. Up to that count no encoded size overflows.
    const size_t most = std::min<size_t>(PTRDIFF_MAX / type_bytes(type), size_t{1} << 56) / times;
    if (count <= most) return {};
    return Error::make(
        Code::invalid_argument,
        "%s is %zu, but memory can hold at most %zu values of %s for each of %" PRIu32 " blocks",
        argument, count, most, name(type), times);
}

Error missing(const Buffer &buffer) {
    return Error::make(Code::invalid_argument, "%s is NULL, but %zu bytes are to be there",
                       buffer.name, buffer.bytes);
}

Error overlap(const Buffer &a, const Buffer &b) {
    return Error::make(Code::invalid_argument,
                       "%s (%zu bytes at %p) and %s (%zu bytes at %p) overlap", a.name, a.bytes,
                       a.start, b.name, b.bytes, b.start);
}

} // namespace qccl
