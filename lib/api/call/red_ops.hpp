// The numbers of operations. Those that programs make begin at 1024, and a process gives each one
// once; they stand in a table of handles, which refuses an operation that has been destroyed. Calls
// look operations up here. Any thread may call; nothing blocks.
#pragma once

#include "base/c_numbers.hpp"
#include "base/element_types.hpp"
#include "base/result.hpp"
#include "engine/compile/custom_op.hpp"

#include <memory>

#include <qccl/qccl.h>

namespace qccl {

struct TakenOp {
    RedOp op = RedOp::sum;
    std::shared_ptr<const CustomOp> made = nullptr; // null: every program has the operation
};

// Whether the number is one that operations of programs have.
constexpr bool has_made_number(qcclRedOp_t op) { return op >= first_made_op; }

// Converts a C value. An unknown number gives invalid_argument, which states what is possible; an
// operation that has been destroyed gives invalid_usage.
Result<TakenOp> take_op(qcclRedOp_t op);

} // namespace qccl
