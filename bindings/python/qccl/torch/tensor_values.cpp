// Two tables, of types and of reductions, and the exceptions among their pairs.
#include "tensor_values.hpp"

#include "core/failure.hpp"

#include <ATen/ATen.h>

#include <array>
#include <optional>

namespace qccl_torch {

namespace {

struct TypeRow {
    at::ScalarType torch;
    qcclDataType_t qccl;
};
constexpr std::array type_rows{
    TypeRow{at::kChar, qcclInt8},
    TypeRow{at::kByte, qcclUint8},
    TypeRow{at::kShort, qcclInt16},
    TypeRow{at::kUInt16, qcclUint16},
    TypeRow{at::kInt, qcclInt32},
    TypeRow{at::kUInt32, qcclUint32},
    TypeRow{at::kLong, qcclInt64},
    TypeRow{at::kUInt64, qcclUint64},
    TypeRow{at::kHalf, qcclFloat16},
    TypeRow{at::kBFloat16, qcclBfloat16},
    TypeRow{at::kFloat, qcclFloat32},
    TypeRow{at::kDouble, qcclFloat64},
    TypeRow{at::kFloat8_e4m3fn, qcclFloat8e4m3},
    TypeRow{at::kFloat8_e5m2, qcclFloat8e5m2},
    TypeRow{at::kComplexFloat, qcclComplex64},
    TypeRow{at::kComplexDouble, qcclComplex128},
    TypeRow{at::kBool, qcclBool},
};

std::optional<qcclDataType_t> own_type(at::ScalarType type) {
    for (const TypeRow &row : type_rows)
        if (row.torch == type) return row.qccl;
    return {};
}

using Op = c10d::ReduceOp::RedOpType;

struct OpRow {
    Op torch;
    const char *name;
    qcclRedOp_t qccl;
    std::optional<qcclRedOp_t> of_bools; // true + true is true, as `or`
    bool is_for_floats, is_for_complex;
};
constexpr std::array op_rows{
    OpRow{Op::SUM, "SUM", qcclSum, qcclMax, true, true},
    OpRow{Op::AVG, "AVG", qcclAvg, {}, true, true},
    OpRow{Op::PRODUCT, "PRODUCT", qcclProd, qcclMin, true, true},
    OpRow{Op::MIN, "MIN", qcclMin, qcclMin, true, false},
    OpRow{Op::MAX, "MAX", qcclMax, qcclMax, true, false},
    OpRow{Op::BAND, "BAND", qcclBitAnd, qcclBitAnd, false, false},
    OpRow{Op::BOR, "BOR", qcclBitOr, qcclBitOr, false, false},
    OpRow{Op::BXOR, "BXOR", qcclBitXor, qcclBitXor, false, false},
    OpRow{Op::PREMUL_SUM, "PREMUL_SUM", qcclSum, {}, true, true},
};

const OpRow &row_of(Op op) {
    for (const OpRow &row : op_rows)
        if (row.torch == op) return row;
    TORCH_CHECK(false, "unsupported reduction operation ", static_cast<int>(op));
}

qcclRedOp_t op_for(const OpRow &row, at::ScalarType type) {
    bool is_possible = true;
    if (type == at::kBool)
        is_possible = row.of_bools.has_value();
    else if (at::isComplexType(type))
        is_possible = row.is_for_complex;
    else if (!at::isIntegralType(type, false))
        is_possible = row.is_for_floats;
    TORCH_CHECK(is_possible, "Cannot use ReduceOp.", row.name, " with tensors of type ", type);
    return type == at::kBool ? *row.of_bools : row.qccl;
}

std::shared_ptr<void> make_premultiplied_sum(const c10d::ReduceOp &op, at::ScalarType type,
                                             qcclDataType_t own, qcclComm_t communicator,
                                             qcclRedOp_t &made) {
    const auto *const given = dynamic_cast<const c10d::PreMulSumSupplement *>(op.supplement_.get());
    TORCH_CHECK(given, "PREMUL_SUM has no factor");
    const at::Tensor factor = given->tensor_factor.defined()
                                  ? given->tensor_factor.to(at::kCPU, type).contiguous()
                                  : at::scalar_tensor(given->double_factor, type);
    check(qcclRedOpCreatePreMulSum(&made, factor.const_data_ptr(), own, qcclScalarHostImmediate,
                                   communicator));
    return {nullptr, [made](void *) { qcclRedOpDestroy(made); }};
}

} // namespace

MovedType moved_type(at::ScalarType type) {
    const size_t bytes = c10::elementSize(type);
    if (const auto own = own_type(type)) return {*own, bytes, 1};
    return {qcclUint8, 1, bytes};
}

Reduction::Reduction(const c10d::ReduceOp &op, at::ScalarType type, qcclComm_t communicator) {
    const auto own = own_type(type);
    TORCH_CHECK(own, "Cannot reduce tensors of type ", type);
    type_ = *own;
    op_ = op_for(row_of(op.op_), type);
    if (op.op_ == Op::PREMUL_SUM)
        made_ = make_premultiplied_sum(op, type, type_, communicator, op_);
}

void reduce_locally(at::Tensor &accumulator, const at::Tensor &values, const c10d::ReduceOp &op) {
    switch (op.op_) {
    case Op::SUM: accumulator.add_(values); return;
    case Op::PRODUCT: accumulator.mul_(values); return;
    case Op::MIN: at::minimum_out(accumulator, accumulator, values); return;
    case Op::MAX: at::maximum_out(accumulator, accumulator, values); return;
    case Op::BAND: accumulator.bitwise_and_(values); return;
    case Op::BOR: accumulator.bitwise_or_(values); return;
    case Op::BXOR: accumulator.bitwise_xor_(values); return;
    default:
        TORCH_CHECK(false, "Cannot use ReduceOp.", row_of(op.op_).name,
                    " with several tensors of one rank");
    }
}

} // namespace qccl_torch
