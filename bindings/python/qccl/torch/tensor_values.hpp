// What torch's types and reductions are in QCCL. The files that make calls use it; any thread may,
// and nothing blocks.
#pragma once

#include <qccl/qccl.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <memory>

namespace qccl_torch {

// The values of a call that moves them. Types that QCCL does not have travel as bytes.
struct MovedType {
    qcclDataType_t type;
    size_t bytes; // of one value
    size_t per_element;
};
MovedType moved_type(at::ScalarType type);

// A reduction of tensors of one type. Owns the operation that QCCL makes for PREMUL_SUM.
class Reduction {
public:
    // Throws c10::Error, which names both, if tensors of this type have no such reduction.
    // `communicator` is the one that makes calls with it.
    Reduction(const c10d::ReduceOp &op, at::ScalarType type, qcclComm_t communicator);

    qcclDataType_t type() const { return type_; }
    qcclRedOp_t op() const { return op_; }

private:
    qcclDataType_t type_;
    qcclRedOp_t op_;
    std::shared_ptr<void> made_; // destroys the operation of PREMUL_SUM
};

// Combines `values` into `accumulator`, element by element, on this rank alone: torch allows a rank
// to give several tensors to one all-reduce.
void reduce_locally(at::Tensor &accumulator, const at::Tensor &values, const c10d::ReduceOp &op);

} // namespace qccl_torch
