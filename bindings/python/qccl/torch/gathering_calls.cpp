// All-gathers: of lists of tensors, into one tensor, and several at once.
#include "argument_checks.hpp"
#include "core/failure.hpp"
#include "tensor_blocks.hpp"
#include "torch_backend.hpp"

#include <ATen/ATen.h>

namespace qccl_torch {

using c10d::OpType;

namespace {

// One all-gather whose parts land in tensors of their own.
struct ListGather {
    MovedType moved;
    DenseBlock from;
    BlockList to;

    ListGather(const at::Tensor &input, const std::vector<at::Tensor> &outputs)
        : moved(moved_type(input.scalar_type())), from(input), to(outputs, moved.bytes, true) {}

    void load() { from.load(); }
    void store() const { to.store(); }

    void launch(const CallTarget &target) const {
        check(qcclAllGatherVConfig(from.data(), to.base(), to.counts(), to.displs(), moved.type,
                                   target.communicator, nullptr, &target.config));
    }
};

// One all-gather into one tensor.
struct TensorGather {
    MovedType moved;
    DenseBlock from, to;

    TensorGather(const at::Tensor &input, const at::Tensor &output)
        : moved(moved_type(input.scalar_type())), from(input), to(output) {}

    void load() { from.load(); }
    void store() const { to.store(); }

    void launch(const CallTarget &target) const {
        check(qcclAllGatherConfig(from.data(), to.data(), from.numel() * moved.per_element,
                                  moved.type, target.communicator, nullptr, &target.config));
    }
};

// Several inputs of one rank travel as one block. Each list of outputs receives all of them.
CallSteps gather_several(const std::vector<std::vector<at::Tensor>> &outputs,
                         const std::vector<at::Tensor> &inputs, int ranks) {
    const at::Tensor &first = inputs.front();
    const auto per_rank = static_cast<int64_t>(inputs.size());
    at::Tensor from = at::empty({per_rank, first.numel()}, first.options().requires_grad(false));
    at::Tensor to = at::empty({ranks * per_rank, first.numel()}, from.options());
    const MovedType moved = moved_type(first.scalar_type());
    return {.prepare =
                [=] {
                    for (size_t i = 0; i < inputs.size(); i++)
                        from[static_cast<int64_t>(i)].copy_(inputs[i].reshape({-1}));
                },
            .launch =
                [=](const CallTarget &target) {
                    check(qcclAllGatherConfig(from.const_data_ptr(), to.mutable_data_ptr(),
                                              static_cast<size_t>(from.numel()) * moved.per_element,
                                              moved.type, target.communicator, nullptr,
                                              &target.config));
                },
            .finish =
                [=] {
                    for (const auto &list : outputs)
                        for (size_t i = 0; i < list.size(); i++)
                            list[i].copy_(to[static_cast<int64_t>(i)].view(list[i].sizes()));
                }};
}

} // namespace

QcclBackend::WorkRef QcclBackend::allgather(TensorLists &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) {
    const Refuse refuse = refuse_for("qccl all_gather");
    c10d::assertNonEmptyInputTensorList(refuse, inputs.size());
    c10d::assertInputOutputTensorListsSameSize(refuse, outputs.size(), inputs.size());
    const size_t expected = inputs.size() * static_cast<size_t>(size_);
    for (size_t i = 0; i < outputs.size(); i++)
        if (outputs[i].size() != expected)
            refuse("invalid output tensor list at index " + std::to_string(i) +
                   " (expected length " + std::to_string(expected) + ", got " +
                   std::to_string(outputs[i].size()) + ")");
    check_dense_on_cpu(refuse, inputs);
    check_alike(refuse, inputs, inputs.front());
    for (const Tensors &list : outputs) {
        check_dense_on_cpu(refuse, list);
        check_alike(refuse, list, inputs.front());
    }
    CallSteps call;
    if (inputs.size() == 1) {
        auto gathers = std::make_shared<std::vector<ListGather>>();
        gathers->emplace_back(inputs.front(), outputs.front());
        call = steps_of(gathers);
    } else {
        call = gather_several(outputs, inputs, size_);
    }
    return submit(std::move(call), {.type = OpType::ALLGATHER,
                                    .title = "qccl:all_gather",
                                    .inputs = inputs,
                                    .outputs = outputs,
                                    .timeout = opts.timeout,
                                    .is_async = opts.asyncOp});
}

QcclBackend::WorkRef QcclBackend::_allgather_base(at::Tensor &output, at::Tensor &input,
                                                  const c10d::AllgatherOptions &opts) {
    const Refuse refuse = refuse_for("qccl all_gather_into_tensor");
    check_dense_on_cpu(refuse, {output, input});
    check_whole(refuse, output, input, size_, "output", "input");
    auto gathers = std::make_shared<std::vector<TensorGather>>();
    gathers->emplace_back(input, output);
    return submit(steps_of(gathers), {.type = OpType::_ALLGATHER_BASE,
                                      .title = "qccl:_all_gather_base",
                                      .inputs = {input},
                                      .outputs = {{output}},
                                      .timeout = opts.timeout,
                                      .is_async = opts.asyncOp});
}

QcclBackend::WorkRef QcclBackend::allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                                                      const c10d::AllgatherOptions &opts) {
    const Refuse refuse = refuse_for("qccl all_gather_coalesced");
    c10d::assertNonEmptyInputTensorList(refuse, inputs.size());
    c10d::assertAllgatherCoalescedOutputTensorLists(refuse, outputs, inputs.size(), size_);
    check_dense_on_cpu(refuse, inputs);
    for (const Tensors &list : outputs) {
        check_dense_on_cpu(refuse, list);
        for (size_t i = 0; i < list.size(); i++) {
            if (list[i].sizes() != inputs[i].sizes())
                refuse("invalid size of output tensor at index " + std::to_string(i) +
                       " (expected " + c10d::toString(inputs[i].sizes()) + ", got " +
                       c10d::toString(list[i].sizes()) + ")");
            c10d::assertTypeMatch(refuse, inputs[i].options(), list, i);
        }
    }
    auto gathers = std::make_shared<std::vector<ListGather>>();
    for (size_t i = 0; i < inputs.size(); i++) {
        Tensors parts;
        for (const Tensors &list : outputs) parts.push_back(list[i]);
        gathers->emplace_back(inputs[i], parts);
    }
    return submit(steps_of(gathers), {.type = OpType::ALLGATHER_COALESCED,
                                      .title = "qccl:all_gather",
                                      .inputs = inputs,
                                      .outputs = outputs,
                                      .timeout = opts.timeout,
                                      .is_async = opts.asyncOp});
}

QcclBackend::WorkRef
QcclBackend::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                             const c10d::AllgatherOptions &opts) {
    const Refuse refuse = refuse_for("qccl all_gather_into_tensor_coalesced");
    c10d::assertNonEmptyInputTensorList(refuse, inputs.size());
    c10d::assertInputOutputTensorListsSameSize(refuse, outputs.size(), inputs.size());
    check_dense_on_cpu(refuse, inputs);
    check_dense_on_cpu(refuse, outputs);
    auto gathers = std::make_shared<std::vector<TensorGather>>();
    for (size_t i = 0; i < inputs.size(); i++) {
        check_whole(refuse, outputs[i], inputs[i], size_, "output", "input");
        gathers->emplace_back(inputs[i], outputs[i]);
    }
    return submit(steps_of(gathers), {.type = OpType::ALLGATHER_COALESCED,
                                      .title = "qccl:all_gather",
                                      .inputs = inputs,
                                      .outputs = {outputs},
                                      .timeout = opts.timeout,
                                      .is_async = opts.asyncOp});
}

} // namespace qccl_torch
