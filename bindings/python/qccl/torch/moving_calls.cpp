// Collectives from or to one rank, all-to-all, and barriers.
#include "argument_checks.hpp"
#include "core/failure.hpp"
#include "tensor_blocks.hpp"
#include "torch_backend.hpp"

#include <ATen/ATen.h>

namespace qccl_torch {

using c10d::OpType;

QcclBackend::WorkRef QcclBackend::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) {
    const Refuse refuse = refuse_for("qccl broadcast");
    c10d::assertRootRank(refuse, opts.rootRank, size_);
    c10d::assertRootTensor(refuse, opts.rootTensor, static_cast<int64_t>(tensors.size()));
    check_dense_on_cpu(refuse, tensors);
    c10d::assertTypeAndSizesMatch(refuse, tensors);
    const auto root_tensor = static_cast<size_t>(opts.rootTensor);
    const MovedType moved = moved_type(tensors.front().scalar_type());
    auto block = std::make_shared<DenseBlock>(tensors[root_tensor]);
    const int root = static_cast<int>(opts.rootRank);
    CallSteps call{.prepare = [block] { block->load(); },
                   .launch =
                       [=](const CallTarget &target) {
                           check(qcclBroadcastConfig(
                               block->data(), block->data(), block->numel() * moved.per_element,
                               moved.type, root, target.communicator, nullptr, &target.config));
                       },
                   .finish =
                       [=] {
                           block->store();
                           for (size_t i = 0; i < tensors.size(); i++)
                               if (i != root_tensor) tensors[i].copy_(tensors[root_tensor]);
                       }};
    return submit(std::move(call), {.type = OpType::BROADCAST,
                                    .title = "qccl:broadcast",
                                    .inputs = tensors,
                                    .outputs = {tensors},
                                    .timeout = opts.timeout,
                                    .is_async = opts.asyncOp});
}

QcclBackend::WorkRef QcclBackend::gather(TensorLists &outputs, Tensors &inputs,
                                         const c10d::GatherOptions &opts) {
    const Refuse refuse = refuse_for("qccl gather");
    c10d::assertRootRank(refuse, opts.rootRank, size_);
    c10d::assertSingleElementInput(refuse, inputs);
    check_dense_on_cpu(refuse, inputs);
    const int root = static_cast<int>(opts.rootRank);
    const MovedType moved = moved_type(inputs.front().scalar_type());
    std::shared_ptr<BlockList> parts;
    if (rank_ == root) {
        c10d::assertGatherOutputTensorList(refuse, outputs, size_);
        check_dense_on_cpu(refuse, outputs.front());
        check_alike(refuse, outputs.front(), inputs.front());
        parts = std::make_shared<BlockList>(outputs.front(), moved.bytes, true);
    } else {
        c10d::assertEmptyOutputTensorList(refuse, outputs);
    }
    auto block = std::make_shared<DenseBlock>(inputs.front());
    CallSteps call{.prepare = [block] { block->load(); },
                   .launch =
                       [=](const CallTarget &target) {
                           check(qcclGatherVConfig(
                               block->data(), block->numel() * moved.per_element,
                               parts ? parts->base() : nullptr, parts ? parts->counts() : nullptr,
                               parts ? parts->displs() : nullptr, moved.type, root,
                               target.communicator, nullptr, &target.config));
                       },
                   .finish =
                       [parts] {
                           if (parts) parts->store();
                       }};
    return submit(std::move(call), {.type = OpType::GATHER,
                                    .title = "qccl:gather",
                                    .inputs = inputs,
                                    .outputs = outputs,
                                    .timeout = opts.timeout,
                                    .is_async = opts.asyncOp});
}

QcclBackend::WorkRef QcclBackend::scatter(Tensors &outputs, TensorLists &inputs,
                                          const c10d::ScatterOptions &opts) {
    const Refuse refuse = refuse_for("qccl scatter");
    c10d::assertRootRank(refuse, opts.rootRank, size_);
    c10d::assertSingleElementOutput(refuse, outputs);
    check_dense_on_cpu(refuse, outputs);
    const int root = static_cast<int>(opts.rootRank);
    const MovedType moved = moved_type(outputs.front().scalar_type());
    std::shared_ptr<BlockList> parts;
    if (rank_ == root) {
        c10d::assertScatterInputTensorList(refuse, inputs, size_);
        check_dense_on_cpu(refuse, inputs.front());
        check_alike(refuse, inputs.front(), outputs.front());
        parts = std::make_shared<BlockList>(inputs.front(), moved.bytes, false);
    } else {
        c10d::assertEmptyInputTensorList(refuse, inputs);
    }
    auto block = std::make_shared<DenseBlock>(outputs.front());
    CallSteps call{.prepare =
                       [parts] {
                           if (parts) parts->load();
                       },
                   .launch =
                       [=](const CallTarget &target) {
                           check(qcclScatterVConfig(
                               parts ? parts->base() : nullptr, parts ? parts->counts() : nullptr,
                               parts ? parts->displs() : nullptr, block->data(),
                               block->numel() * moved.per_element, moved.type, root,
                               target.communicator, nullptr, &target.config));
                       },
                   .finish = [block] { block->store(); }};
    return submit(std::move(call), {.type = OpType::SCATTER,
                                    .title = "qccl:scatter",
                                    .inputs = inputs.empty() ? Tensors{} : inputs.front(),
                                    .outputs = {outputs},
                                    .timeout = opts.timeout,
                                    .is_async = opts.asyncOp});
}

// ---- All-to-all

namespace {

// The parts of a tensor that is split along its first dimension, in elements.
struct SplitParts {
    std::vector<size_t> counts, displs;

    SplitParts(const std::vector<int64_t> &splits, const at::Tensor &tensor, int ranks,
               const MovedType &moved)
        : counts(static_cast<size_t>(ranks)), displs(static_cast<size_t>(ranks)) {
        c10d::checkSplitSizes(splits, tensor, ranks);
        c10d::computeLengthsAndOffsets(splits, tensor, &counts, &displs);
        for (size_t &count : counts) count *= moved.per_element;
        for (size_t &displ : displs) displ *= moved.per_element;
    }
};

} // namespace

QcclBackend::WorkRef QcclBackend::alltoall_base(at::Tensor &output, at::Tensor &input,
                                                std::vector<int64_t> &output_splits,
                                                std::vector<int64_t> &input_splits,
                                                const c10d::AllToAllOptions &opts) {
    const Refuse refuse = refuse_for("qccl all_to_all_single");
    check_dense_on_cpu(refuse, {output, input});
    TORCH_CHECK(output.scalar_type() == input.scalar_type(),
                "qccl all_to_all_single: output and input tensors must have the same type");
    const MovedType moved = moved_type(input.scalar_type());
    const auto send = std::make_shared<SplitParts>(input_splits, input, size_, moved);
    const auto recv = std::make_shared<SplitParts>(output_splits, output, size_, moved);
    auto from = std::make_shared<DenseBlock>(input), to = std::make_shared<DenseBlock>(output);
    // The v-form also without splits, because other ranks may have splits.
    CallSteps call{.prepare = [from] { from->load(); },
                   .launch =
                       [=](const CallTarget &target) {
                           check(qcclAllToAllVConfig(
                               from->data(), send->counts.data(), send->displs.data(), to->data(),
                               recv->counts.data(), recv->displs.data(), moved.type,
                               target.communicator, nullptr, &target.config));
                       },
                   .finish = [to] { to->store(); }};
    return submit(std::move(call), {.type = OpType::ALLTOALL_BASE,
                                    .title = "qccl:all_to_all",
                                    .inputs = {input},
                                    .outputs = {{output}},
                                    .timeout = opts.timeout,
                                    .is_async = opts.asyncOp});
}

QcclBackend::WorkRef QcclBackend::alltoall(Tensors &outputs, Tensors &inputs,
                                           const c10d::AllToAllOptions &opts) {
    const Refuse refuse = refuse_for("qccl all_to_all");
    c10d::assertAllToAllTensorListSizes(refuse, outputs.size(), inputs.size(), size_);
    check_dense_on_cpu(refuse, inputs);
    check_dense_on_cpu(refuse, outputs);
    for (const Tensors *const list : {&inputs, &outputs})
        for (const at::Tensor &tensor : *list)
            if (tensor.scalar_type() != inputs.front().scalar_type())
                refuse("tensors must all have the same type");
    const MovedType moved = moved_type(inputs.front().scalar_type());
    auto from = std::make_shared<BlockList>(inputs, moved.bytes, false);
    auto to = std::make_shared<BlockList>(outputs, moved.bytes, true);
    CallSteps call{.prepare = [from] { from->load(); },
                   .launch =
                       [=](const CallTarget &target) {
                           check(qcclAllToAllVConfig(from->base(), from->counts(), from->displs(),
                                                     to->base(), to->counts(), to->displs(),
                                                     moved.type, target.communicator, nullptr,
                                                     &target.config));
                       },
                   .finish = [to] { to->store(); }};
    return submit(std::move(call), {.type = OpType::ALLTOALL,
                                    .title = "qccl:all_to_all",
                                    .inputs = inputs,
                                    .outputs = {outputs},
                                    .timeout = opts.timeout,
                                    .is_async = opts.asyncOp});
}

// The queue keeps the program's order, so a barrier also waits for all earlier calls of this rank.
QcclBackend::WorkRef QcclBackend::barrier(const c10d::BarrierOptions &opts) {
    CallSteps call{.prepare = nullptr,
                   .launch =
                       [](const CallTarget &target) {
                           check(qcclBarrierConfig(target.communicator, nullptr, &target.config));
                       },
                   .finish = nullptr};
    return submit(std::move(call), {.type = OpType::BARRIER,
                                    .title = "qccl:barrier",
                                    .inputs = {},
                                    .outputs = {},
                                    .timeout = opts.timeout,
                                    .is_async = opts.asyncOp});
}

} // namespace qccl_torch
