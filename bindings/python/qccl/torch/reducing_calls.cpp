// Collectives that combine values.
#include "argument_checks.hpp"
#include "core/failure.hpp"
#include "tensor_blocks.hpp"
#include "torch_backend.hpp"

#include <ATen/ATen.h>

namespace qccl_torch {

using c10d::OpType;

namespace {

// One reduce-scatter of a whole tensor.
struct TensorReduceScatter {
    Reduction reduction;
    DenseBlock from, to;

    void load() { from.load(); }
    void store() const { to.store(); }
    void launch(const CallTarget &target) const {
        check(qcclReduceScatterConfig(from.data(), to.data(), to.numel(), reduction.type(),
                                      reduction.op(), target.communicator, nullptr,
                                      &target.config));
    }
};

struct TensorAllReduce {
    Reduction reduction;
    DenseBlock block;

    void load() { block.load(); }
    void store() const { block.store(); }
    void launch(const CallTarget &target) const {
        check(qcclAllReduceConfig(block.data(), block.data(), block.numel(), reduction.type(),
                                  reduction.op(), target.communicator, nullptr, &target.config));
    }
};

} // namespace

// Several tensors of one rank are combined first, and all of them receive the result.
QcclBackend::WorkRef QcclBackend::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) {
    const Refuse refuse = refuse_for("qccl all_reduce");
    c10d::assertNonEmpty(refuse, tensors);
    c10d::assertLayoutMatch(refuse, tensors);
    c10d::assertTypeAndSizesMatch(refuse, tensors);
    check_on_cpu(refuse, tensors);
    if (tensors.front().layout() == at::kSparse) return sparse_allreduce(tensors, opts);
    check_dense_on_cpu(refuse, tensors);
    auto reduce = std::make_shared<TensorAllReduce>(TensorAllReduce{
        reduction(opts.reduceOp, tensors.front().scalar_type()), DenseBlock(tensors.front())});
    const bool has_several = tensors.size() > 1;
    TORCH_CHECK(!has_several || (opts.reduceOp.op_ != c10d::ReduceOp::AVG &&
                                 opts.reduceOp.op_ != c10d::ReduceOp::PREMUL_SUM),
                "qccl all_reduce: AVG and PREMUL_SUM take one tensor of each rank");
    CallSteps call{.prepare =
                       [=, op = opts.reduceOp] {
                           reduce->block.load();
                           for (size_t i = 1; i < tensors.size(); i++)
                               reduce_locally(reduce->block.dense(), tensors[i], op);
                       },
                   .launch = [reduce](const CallTarget &target) { reduce->launch(target); },
                   .finish =
                       [=] {
                           reduce->block.store();
                           for (size_t i = 1; i < tensors.size(); i++)
                               tensors[i].copy_(tensors.front());
                       }};
    return submit(std::move(call), {.type = OpType::ALLREDUCE,
                                    .title = "qccl:all_reduce",
                                    .inputs = tensors,
                                    .outputs = {tensors},
                                    .timeout = opts.timeout,
                                    .is_async = opts.asyncOp});
}

QcclBackend::WorkRef QcclBackend::allreduce_sparse(Tensors &tensors,
                                                   const c10d::AllreduceOptions &opts) {
    return allreduce(tensors, opts);
}

QcclBackend::WorkRef QcclBackend::allreduce_coalesced(Tensors &tensors,
                                                      const c10d::AllreduceCoalescedOptions &opts) {
    const Refuse refuse = refuse_for("qccl all_reduce_coalesced");
    c10d::assertNonEmpty(refuse, tensors);
    c10d::assertLayoutMatch(refuse, tensors);
    for (const at::Tensor &tensor : tensors)
        if (!tensor.options().type_equal(tensors.front().options()))
            refuse("tensors must all have the same type");
    check_dense_on_cpu(refuse, tensors);
    auto reduces = std::make_shared<std::vector<TensorAllReduce>>();
    const bool is_copied = do_overlap(tensors); // else a value would be reduced twice
    for (const at::Tensor &tensor : tensors)
        reduces->push_back(
            {reduction(opts.reduceOp, tensor.scalar_type()), DenseBlock(tensor, is_copied)});
    return submit(steps_of(reduces), {.type = OpType::ALLREDUCE_COALESCED,
                                      .title = "qccl:all_reduce",
                                      .inputs = tensors,
                                      .outputs = {tensors},
                                      .timeout = opts.timeout,
                                      .is_async = opts.asyncOp});
}

QcclBackend::WorkRef QcclBackend::reduce(Tensors &tensors, const c10d::ReduceOptions &opts) {
    const Refuse refuse = refuse_for("qccl reduce");
    c10d::assertRootRank(refuse, opts.rootRank, size_);
    c10d::assertRootTensor(refuse, opts.rootTensor, static_cast<int64_t>(tensors.size()));
    c10d::assertSingleElement(refuse, tensors);
    check_dense_on_cpu(refuse, tensors);
    const int root = static_cast<int>(opts.rootRank);
    const bool is_root = rank_ == root;
    const Reduction reduction = this->reduction(opts.reduceOp, tensors.front().scalar_type());
    auto block = std::make_shared<DenseBlock>(tensors.front());
    CallSteps call{.prepare = [block] { block->load(); },
                   .launch =
                       [=](const CallTarget &target) {
                           check(qcclReduceConfig(block->data(), is_root ? block->data() : nullptr,
                                                  block->numel(), reduction.type(), reduction.op(),
                                                  root, target.communicator, nullptr,
                                                  &target.config));
                       },
                   .finish =
                       [=] {
                           if (is_root) block->store();
                       }};
    return submit(std::move(call), {.type = OpType::REDUCE,
                                    .title = "qccl:reduce",
                                    .inputs = tensors,
                                    .outputs = {tensors},
                                    .timeout = opts.timeout,
                                    .is_async = opts.asyncOp});
}

// ---- Reduce-scatters

QcclBackend::WorkRef QcclBackend::reduce_scatter(Tensors &outputs, TensorLists &inputs,
                                                 const c10d::ReduceScatterOptions &opts) {
    const Refuse refuse = refuse_for("qccl reduce_scatter");
    c10d::assertSingleElementOutput(refuse, outputs);
    c10d::assertScatterInputTensorList(refuse, inputs, size_);
    check_dense_on_cpu(refuse, outputs);
    check_dense_on_cpu(refuse, inputs.front());
    for (size_t i = 0; i < inputs.front().size(); i++)
        c10d::assertTypeMatch(refuse, outputs.front().options(), inputs.front(), i);
    if (outputs.front().numel() != inputs.front()[static_cast<size_t>(rank_)].numel())
        refuse("invalid tensor size: the output does not have the size of this rank's input");
    const Reduction reduction = this->reduction(opts.reduceOp, outputs.front().scalar_type());
    auto from = std::make_shared<BlockList>(inputs.front(), outputs.front().element_size(), false);
    auto to = std::make_shared<DenseBlock>(outputs.front());
    CallSteps call{.prepare = [from] { from->load(); },
                   .launch =
                       [=](const CallTarget &target) {
                           check(qcclReduceScatterVConfig(from->base(), to->data(), from->counts(),
                                                          from->displs(), reduction.type(),
                                                          reduction.op(), target.communicator,
                                                          nullptr, &target.config));
                       },
                   .finish = [to] { to->store(); }};
    return submit(std::move(call), {.type = OpType::REDUCE_SCATTER,
                                    .title = "qccl:reduce_scatter",
                                    .inputs = inputs.front(),
                                    .outputs = {outputs},
                                    .timeout = opts.timeout,
                                    .is_async = opts.asyncOp});
}

QcclBackend::WorkRef QcclBackend::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                                       const c10d::ReduceScatterOptions &opts) {
    const Refuse refuse = refuse_for("qccl reduce_scatter_tensor");
    check_dense_on_cpu(refuse, {output, input});
    check_whole(refuse, input, output, size_, "input", "output");
    auto reduces = std::make_shared<std::vector<TensorReduceScatter>>();
    reduces->push_back(
        {reduction(opts.reduceOp, input.scalar_type()), DenseBlock(input), DenseBlock(output)});
    return submit(steps_of(reduces), {.type = OpType::_REDUCE_SCATTER_BASE,
                                      .title = "qccl:_reduce_scatter_base",
                                      .inputs = {input},
                                      .outputs = {{output}},
                                      .timeout = opts.timeout,
                                      .is_async = opts.asyncOp});
}

QcclBackend::WorkRef
QcclBackend::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                             const c10d::ReduceScatterOptions &opts) {
    const Refuse refuse = refuse_for("qccl reduce_scatter_tensor_coalesced");
    c10d::assertNonEmptyInputTensorList(refuse, inputs.size());
    c10d::assertInputOutputTensorListsSameSize(refuse, outputs.size(), inputs.size());
    check_dense_on_cpu(refuse, inputs);
    check_dense_on_cpu(refuse, outputs);
    auto reduces = std::make_shared<std::vector<TensorReduceScatter>>();
    for (size_t i = 0; i < inputs.size(); i++) {
        check_whole(refuse, inputs[i], outputs[i], size_, "input", "output");
        reduces->push_back({reduction(opts.reduceOp, inputs[i].scalar_type()),
                            DenseBlock(inputs[i]), DenseBlock(outputs[i])});
    }
    return submit(steps_of(reduces), {.type = OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                                      .title = "qccl:reduce_scatter",
                                      .inputs = inputs,
                                      .outputs = {outputs},
                                      .timeout = opts.timeout,
                                      .is_async = opts.asyncOp});
}

} // namespace qccl_torch
