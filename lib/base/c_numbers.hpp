// The numbers of element types and operations in the C header. Those that NCCL has, too, have
// NCCL's numbers. QCCL's own begin at 64, so that none of NCCL's will ever be among them; inside
// the library and on the wire they follow NCCL's without a gap. The C functions, the tools and the
// tests that call them convert here. Pure; any thread may call.
#pragma once

#include "base/element_types.hpp"

#include <cstdint>
#include <optional>

namespace qccl {

// The library's own numbers of one enumeration: `first` inside, and as many as follow.
struct OwnNumbers {
    static constexpr int32_t first_in_c = 64;

    int32_t first, end;

    constexpr int32_t to_c(int32_t number) const {
        return number < first ? number : number - first + first_in_c;
    }
    // Returns -1 for a number that the C header does not have.
    constexpr int32_t from_c(int32_t number) const {
        if (number < 0 || number >= first_in_c + end - first) return -1;
        if (number < first) return number;
        return number < first_in_c ? -1 : number - first_in_c + first;
    }
    constexpr int32_t last_in_c() const { return to_c(end - 1); }
};

inline constexpr OwnNumbers own_types{static_cast<int32_t>(DataType::int16),
                                      static_cast<int32_t>(type_table.size())};
inline constexpr OwnNumbers own_ops{static_cast<int32_t>(RedOp::bit_and),
                                    static_cast<int32_t>(predefined_ops)};

constexpr int32_t number_in_c(DataType type) { return own_types.to_c(static_cast<int32_t>(type)); }
constexpr int32_t number_in_c(RedOp op) { return own_ops.to_c(static_cast<int32_t>(op)); }

// The first number of an operation that a program has made.
inline constexpr int32_t first_made_op = 1024;

// Convert what a C caller passed; nothing if the number is not valid.
constexpr std::optional<DataType> type_from_c(int32_t number) {
    return to_type(own_types.from_c(number));
}
constexpr std::optional<RedOp> op_from_c(int32_t number) { return to_op(own_ops.from_c(number)); }

} // namespace qccl
