// The all-reduce of sparse tensors: each rank learns how many values the others have, compares the
// sizes of the tensors, gathers indices and values, and adds them up. All ranks add in the order of
// the ranks.
#include "argument_checks.hpp"
#include "core/failure.hpp"
#include "tensor_values.hpp"
#include "torch_backend.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace qccl_torch {

namespace {

// What a rank tells the others before it sends its tensor.
struct SparseShape {
    int64_t values = 0, sparse_dims = 0, dense_dims = 0, dense_numel = 0;

    explicit SparseShape(const at::Tensor &sum)
        : values(sum._nnz()), sparse_dims(sum.sparse_dim()), dense_dims(sum.dense_dim()) {
        const at::IntArrayRef sizes = sum.sizes().slice(static_cast<size_t>(sparse_dims));
        dense_numel = std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
    }
    SparseShape() = default;
};

class SparseSum {
public:
    SparseSum(std::vector<at::Tensor> tensors, int ranks)
        : tensors_(std::move(tensors)), ranks_(static_cast<size_t>(ranks)) {}

    void reduce(const CallTarget &target) {
        at::Tensor own = tensors_.front();
        for (size_t i = 1; i < tensors_.size(); i++) own = own + tensors_[i];
        own = own.coalesce();
        learn_shapes(SparseShape(own), target);
        compare_sizes(own.sizes(), target);
        const at::Tensor indices =
            gather(own._indices(), shapes_.front().sparse_dims, at::kLong, target);
        const at::Tensor values =
            gather(own._values(), shapes_.front().dense_numel, own.scalar_type(), target);
        const at::Tensor sum = assemble(indices, values, own);
        for (at::Tensor &tensor : tensors_) tensor.copy_(sum);
    }

private:
    void learn_shapes(const SparseShape &own, const CallTarget &target) {
        shapes_.resize(ranks_);
        check(qcclAllGatherConfig(&own, shapes_.data(), sizeof own, qcclUint8, target.communicator,
                                  nullptr, &target.config));
        const SparseShape &first = shapes_.front();
        for (size_t rank = 1; rank < ranks_; rank++)
            TORCH_CHECK(shapes_[rank].sparse_dims == first.sparse_dims &&
                            shapes_[rank].dense_dims == first.dense_dims,
                        "qccl all_reduce: the sparse tensor of rank ", rank,
                        " has other dimensions than that of rank 0");
    }

    // All ranks compare the same, so all of them refuse the call, or none.
    void compare_sizes(at::IntArrayRef own, const CallTarget &target) const {
        if (own.empty()) return;
        std::vector<int64_t> all(ranks_ * own.size());
        check(qcclAllGatherConfig(own.data(), all.data(), own.size(), qcclInt64,
                                  target.communicator, nullptr, &target.config));
        const at::IntArrayRef sizes(all);
        for (size_t rank = 1; rank < ranks_; rank++) {
            const at::IntArrayRef first = sizes.slice(0, own.size());
            const at::IntArrayRef other = sizes.slice(rank * own.size(), own.size());
            TORCH_CHECK(other.equals(first), "qccl all_reduce: the sparse tensor of rank ", rank,
                        " has the sizes ", other, ", that of rank 0 has ", first);
        }
    }

    // Gathers one after the other what ranks have, `per_value` elements for each of their values.
    at::Tensor gather(const at::Tensor &given, int64_t per_value, at::ScalarType type,
                      const CallTarget &target) {
        const at::Tensor own = given.contiguous();
        std::vector<size_t> counts;
        int64_t total = 0;
        for (const SparseShape &shape : shapes_) {
            counts.push_back(static_cast<size_t>(shape.values * per_value));
            total += shape.values * per_value;
        }
        at::Tensor all = at::empty({total}, own.options().dtype(type));
        const MovedType moved = moved_type(type);
        for (size_t &count : counts) count *= moved.per_element;
        check(qcclAllGatherVConfig(own.const_data_ptr(), all.mutable_data_ptr(), counts.data(),
                                   nullptr, moved.type, target.communicator, nullptr,
                                   &target.config));
        return all;
    }

    at::Tensor assemble(const at::Tensor &indices, const at::Tensor &values,
                        const at::Tensor &own) const {
        std::vector<at::Tensor> columns;
        int64_t start = 0, total = 0;
        for (const SparseShape &shape : shapes_) {
            const int64_t length = shape.sparse_dims * shape.values;
            columns.push_back(
                indices.narrow(0, start, length).view({shape.sparse_dims, shape.values}));
            start += length;
            total += shape.values;
        }
        std::vector<int64_t> value_sizes = own._values().sizes().vec();
        value_sizes.front() = total;
        return at::_sparse_coo_tensor_unsafe(at::cat(columns, 1), values.view(value_sizes),
                                             own.sizes(), own.options())
            .coalesce();
    }

    std::vector<at::Tensor> tensors_;
    const size_t ranks_;
    std::vector<SparseShape> shapes_;
};

} // namespace

QcclBackend::WorkRef QcclBackend::sparse_allreduce(const Tensors &tensors,
                                                   const c10d::AllreduceOptions &opts) {
    TORCH_CHECK(opts.reduceOp.op_ == c10d::ReduceOp::SUM,
                "qccl all_reduce: unsupported reduction operation: sparse tensors have "
                "ReduceOp.SUM only");
    auto sum = std::make_shared<SparseSum>(tensors, size_);
    CallSteps call{.prepare = nullptr,
                   .launch = [sum](const CallTarget &target) { sum->reduce(target); },
                   .finish = nullptr,
                   .is_stepwise = true};
    return submit(std::move(call), {.type = c10d::OpType::_ALLREDUCE_SPARSE,
                                    .title = "qccl:sparse_all_reduce",
                                    .inputs = tensors,
                                    .outputs = {tensors},
                                    .timeout = opts.timeout,
                                    .is_async = opts.asyncOp});
}

} // namespace qccl_torch
