// Implements kernel_launch.hpp: puts kernels into streams and checks the memory that QCCL's kernels
// access.
#include "kernels/emulated_runtime/kernel_launch.hpp"

#include "kernels/emulated_kernels.hpp"

#include <cstring>

namespace qccl::emulated {
namespace {

// Alternates the order of a launch's threads, because no result may depend on the order.
Order next_order() {
    static thread_local bool is_reverse = false;
    is_reverse = !is_reverse;
    return is_reverse ? Order::reverse : Order::forward;
}

Outcome outcome_of(const Done &done) {
    return done ? Outcome() : Outcome(qcclEmulatedErrorLaunchFailure, done.error().text);
}

// Returns the bytes that an operand must have at least. Coded values lie where their codec places
// them, so only their first byte is checked.
size_t least_bytes(const Operand &operand, uint64_t count) {
    return operand.codec == CodecId::none ? count * type_bytes(operand.type) : 1;
}

Outcome check_addresses(Runtime &runtime, int device, const Batch &batch) {
    const Lock lock(runtime.mutex);
    for (uint32_t i = 0; i < batch.tensors; i++) {
        const Tensor &tensor = batch.tensor[i];
        if (tensor.count == 0) continue;
        for (uint32_t j = 0; j <= tensor.sources; j++) {
            const Operand &operand = batch.operand[tensor.first_source - 1 + j];
            if (!runtime.reaches(device, operand.at, least_bytes(operand, tensor.count)))
                return {qcclEmulatedErrorIllegalAddress, "a kernel touches memory that GPU " +
                                                             std::to_string(device) +
                                                             " does not reach"};
        }
    }
    if (batch.call && !runtime.reaches(device, batch.call, sizeof *batch.call))
        return qcclEmulatedErrorIllegalAddress;
    return {};
}

Outcome check_launch(const StreamPtr &stream, unsigned blocks) {
    if (!stream) return qcclEmulatedErrorInvalidHandle;
    if (stream->device != self().device)
        return {qcclEmulatedErrorInvalidHandle, "a kernel on one GPU, a stream of another"};
    if (blocks == 0) return qcclEmulatedErrorInvalidValue;
    return {};
}

} // namespace

qcclEmulatedResult_t launch(qcclEmulatedStream_t handle, KernelId kernel, unsigned blocks,
                            const Batch &batch) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (Outcome refused = check_launch(stream, blocks); !refused.is_ok()) return refused;
        return runtime.put(stream,
                           [&runtime, device = stream->device, kernel, blocks,
                            copy = std::make_shared<Batch>(batch)]() -> Outcome {
                               Outcome checked = check_addresses(runtime, device, *copy);
                               if (!checked.is_ok()) return checked;
                               return outcome_of(
                                   launch_emulated(static_cast<unsigned>(lanes_of(device)),
                                                   next_order(), kernel, blocks, *copy));
                           });
    });
}

Outcome put_kernel(Runtime &runtime, const StreamPtr &stream, qcclEmulatedKernel_t kernel,
                   unsigned blocks, unsigned threads, const void *argument, size_t bytes) {
    if (Outcome refused = check_launch(stream, blocks); !refused.is_ok()) return refused;
    if (!kernel || threads == 0 || (bytes > 0 && !argument)) return qcclEmulatedErrorInvalidValue;
    const auto lanes = static_cast<unsigned>(lanes_of(stream->device));
    if (threads % lanes != 0)
        return {qcclEmulatedErrorInvalidValue, "a block has no whole number of warps"};
    auto copy = std::make_shared<std::vector<std::byte>>(bytes);
    if (bytes > 0) std::memcpy(copy->data(), argument, bytes);
    return runtime.put(stream, [=]() -> Outcome {
        self().is_in_kernel = true;
        const Done done =
            emulated::launch({.blocks = blocks, .threads = threads, .lanes = lanes}, next_order(),
                             [&] { kernel(copy->data(), block(), thread()); });
        self().is_in_kernel = false;
        return outcome_of(done);
    });
}

} // namespace qccl::emulated

void qcclEmulatedSyncThreads(void) {
    if (qccl::emulated::self().is_in_kernel) qccl::emulated::barrier();
}
