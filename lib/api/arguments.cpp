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
    // No address space holds 2^56 values, and up to there no size of an encoding wraps.
    const size_t most = std::min<size_t>(PTRDIFF_MAX / type_bytes(type), size_t{1} << 56) / times;
    if (count <= most) return {};
    return Error::make(
        Code::invalid_argument,
        "%s is %zu, but memory can hold at most %zu values of %s for each of %" PRIu32 " blocks",
        argument, count, most, name(type), times);
}

Done check_pointer(const Buffer &buffer) {
    if (buffer.start || buffer.bytes == 0) return {};
    return Error::make(Code::invalid_argument, "%s is NULL, but %zu bytes are to be there",
                       buffer.name, buffer.bytes);
}

Done check_apart(const Buffer &a, const Buffer &b) {
    const auto a_start = reinterpret_cast<uintptr_t>(a.start);
    const auto b_start = reinterpret_cast<uintptr_t>(b.start);
    if (a.bytes == 0 || b.bytes == 0) return {};
    // Compared by distance, so that a buffer at the end of the address space cannot wrap.
    const bool overlap =
        a_start <= b_start ? b_start - a_start < a.bytes : a_start - b_start < b.bytes;
    if (!overlap) return {};
    return Error::make(Code::invalid_argument,
                       "%s (%zu bytes at %p) and %s (%zu bytes at %p) overlap", a.name, a.bytes,
                       a.start, b.name, b.bytes, b.start);
}

} // namespace qccl
