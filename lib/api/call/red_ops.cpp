// The C functions that make and destroy operations. The number of an operation is made of the slot
// and the generation of its handle.
#include "api/call/red_ops.hpp"

#include "api/call/collective_call.hpp"
#include "api/call/entry.hpp"
#include "comm/boundary.hpp"
#include "comm/handle_table.hpp"

#include <cinttypes>
#include <cstring>
#include <limits>

namespace qccl {

namespace {

using OpHandles = HandleTable<HandleRecord<const CustomOp>>;

// So many operations can exist at a time. The product of both is the number of operations that a
// process can make.
constexpr uint32_t most_ops = 4096;
constexpr uint32_t most_generations =
    (std::numeric_limits<int32_t>::max() - first_made_op) / most_ops;

constexpr HandleKind op_kind{.tag = 0x51C7,
                             .argument = "op",
                             .unknown = "no qcclRedOpCreate made",
                             .ended = "destroyed",
                             .is_inherited = true,
                             .most_slots = most_ops,
                             .last_generation = most_generations};

int32_t number_of(const HandleId &id) {
    return first_made_op + static_cast<int32_t>((id.generation - 1) * most_ops + id.slot);
}

HandleId id_of(qcclRedOp_t op) {
    const auto place = static_cast<uint32_t>(op - first_made_op);
    return {.tag = op_kind.tag, .slot = place % most_ops, .generation = place / most_ops + 1};
}

} // namespace

static constinit OpHandles op_handles{op_kind};

static Error unknown(qcclRedOp_t op) {
    return invalid_argument("op is %" PRId32 "; possible are %d (qcclSum) to %d (qcclAvg), %d "
                            "(qcclBitAnd) to %d (qcclMaxLoc), and operations of qcclRedOpCreate "
                            "and qcclRedOpCreatePreMulSum",
                            op, qcclSum, qcclAvg, qcclBitAnd, own_ops.last_in_c())
        .compared(0, op);
}

static Error destroyed(qcclRedOp_t op) {
    return Error::make(Code::invalid_usage, "op is %" PRId32 ", which has been destroyed", op);
}

static Result<OpHandles::Reference> refer(qcclRedOp_t op) {
    auto found = op_handles.refer(id_of(op).handle());
    if (found) return found;
    if (found.error().code == Code::invalid_argument) return unknown(op);
    return destroyed(op);
}

Result<TakenOp> take_op(qcclRedOp_t op) {
    if (!has_made_number(op)) {
        if (const auto known = op_from_c(op)) return TakenOp{*known};
        return unknown(op);
    }
    QCCL_TRY(const auto made, refer(op));
    return TakenOp{made->kind, made.record().object};
}

static Done create(qcclRedOp_t *op_out, CustomOp op) {
    const auto made = std::make_shared<CustomOp>(op);
    QCCL_TRY(const void *const handle, op_handles.add(made));
    // No call can use the operation before the caller has its number.
    made->number = *op_out = number_of(HandleId::of(handle));
    return {};
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclRedOpCreate(qcclRedOp_t *op_out, qcclRedOpFunction_t function, int commutes,
                             void *context) {
    return guarded([=]() -> Done {
        if (!op_out) return invalid_argument("op_out is NULL");
        if (!function) return invalid_argument("function is NULL");
        if (commutes != 0 && commutes != 1)
            return invalid_argument("commutes is %d; possible are 0 and 1", commutes)
                .compared(1, commutes);
        return create(op_out, {.kind = commutes ? RedOp::custom : RedOp::custom_in_order,
                               .function = function,
                               .context = context});
    });
}
QCCL_TWIN(qcclRedOpCreate);

qcclResult_t qcclRedOpCreatePreMulSum(qcclRedOp_t *op_out, const void *scalar, qcclDataType_t type,
                                      qcclScalarResidence_t residence, qcclComm_t comm) {
    return at_any_time(comm, [=](const Comm &of) -> Done {
        if (!op_out) return invalid_argument("op_out is NULL");
        if (!scalar) return invalid_argument("scalar is NULL");
        CustomOp op{.kind = RedOp::pre_mul_sum};
        QCCL_TRY(op.type, take_type(type));
        QCCL_TRY(check_op(Collective::all_reduce, op.type, op.kind));
        if (residence != qcclScalarDevice && residence != qcclScalarHostImmediate)
            return invalid_argument("residence is %" PRId32 "; possible are %d (qcclScalarDevice) "
                                    "and %d (qcclScalarHostImmediate)",
                                    residence, qcclScalarDevice, qcclScalarHostImmediate)
                .compared(qcclScalarHostImmediate, residence);
        if (residence == qcclScalarDevice) {
            QCCL_TRY(check_place(of, {"scalar", scalar, type_bytes(op.type)}));
            op.factor_at = scalar;
        } else {
            std::memcpy(op.factor.data(), scalar, type_bytes(op.type));
        }
        return create(op_out, op);
    });
}
QCCL_TWIN(qcclRedOpCreatePreMulSum);

qcclResult_t qcclRedOpDestroy(qcclRedOp_t op) {
    return guarded([=]() -> Done {
        if (!has_made_number(op) && op_from_c(op))
            return invalid_argument("op is %" PRId32 ", which every program has; only operations "
                                    "of qcclRedOpCreate and qcclRedOpCreatePreMulSum end",
                                    op);
        if (!has_made_number(op)) return unknown(op);
        QCCL_TRY(auto made, refer(op));
        if (!made.end()) return destroyed(op); // another thread was faster
        return {};
    });
}
QCCL_TWIN(qcclRedOpDestroy);
