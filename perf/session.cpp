// Wrappers of the C API: error texts, codecs, buffers, registrations and calls.
#include "perf/session.hpp"

#include <sys/mman.h>

namespace qccl::perf {

Done explained(qcclResult_t result, const char *call, qcclComm_t comm) {
    if (result == qcclSuccess) return {};
    const char *const sentence = qcclGetLastError(comm);
    return Error::make(static_cast<Code>(result), "%s: %s", call,
                       *sentence ? sentence : qcclGetErrorString(result));
}

Result<CodecHandle> create_codec(const Codec &codec) {
    qcclCodec_t handle = nullptr;
    QCCL_TRY(explained(qcclCodecCreate(&handle, spec(codec).c_str()), "qcclCodecCreate"));
    return CodecHandle(handle);
}

Result<Buffer> Buffer::create(const RankDevice &device, Buffers kind, size_t bytes, size_t offset) {
    const size_t whole = bytes + offset + 1; // never empty
    void *memory = nullptr;
    if (const auto &gpu = device.gpu()) {
        // Freeing other GPU memory waits for all work of the GPU, including that of other ranks.
        QCCL_TRY(memory, gpu->allocate_private(whole));
    } else if (kind == Buffers::shareable) {
        QCCL_TRY(explained(qcclMemAlloc(&memory, whole), "qcclMemAlloc"));
    } else {
        memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return Error::make(Code::system_error, "no memory for a buffer of %zu bytes", whole);
    }
    return Buffer(device.gpu(), kind, memory, whole, offset);
}

Buffer::Buffer(Buffer &&other) noexcept
    : gpu_(std::move(other.gpu_)), kind_(other.kind_),
      memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_), offset_(other.offset_) {
}

Buffer::~Buffer() {
    if (!memory_) return;
    if (gpu_)
        gpu_->free_private(static_cast<std::byte *>(memory_));
    else if (kind_ == Buffers::shareable)
        (void)qcclMemFree(memory_);
    else
        munmap(memory_, bytes_);
}

Result<Registered> Registered::create(qcclComm_t comm, const Buffer &buffer) {
    void *handle = nullptr;
    QCCL_TRY(explained(qcclCommRegister(comm, buffer.data(), buffer.bytes(), &handle),
                       "qcclCommRegister", comm));
    return Registered(comm, handle);
}

Done call_collective(qcclComm_t comm, const Operation &operation, const void *send, void *recv,
                     qcclStream_t stream, const qcclCollConfig_t *config) {
    const auto type = static_cast<qcclDataType_t>(operation.type);
    const auto op = static_cast<qcclRedOp_t>(operation.op);
    switch (operation.collective) {
    case Collective::all_reduce:
        return explained(
            qcclAllReduceConfig(send, recv, operation.count, type, op, comm, stream, config),
            "qcclAllReduce", comm);
    case Collective::reduce_scatter:
        return explained(
            qcclReduceScatterConfig(send, recv, operation.count, type, op, comm, stream, config),
            "qcclReduceScatter", comm);
    case Collective::all_gather:
        return explained(
            qcclAllGatherConfig(send, recv, operation.count, type, comm, stream, config),
            "qcclAllGather", comm);
    case Collective::broadcast:
        return explained(qcclBroadcastConfig(send, recv, operation.count, type,
                                             static_cast<int>(operation.root), comm, stream,
                                             config),
                         "qcclBroadcast", comm);
    case Collective::barrier:
        return explained(qcclBarrierConfig(comm, stream, config), "qcclBarrier", comm);
    }
    return Error::make(Code::internal_error, "no such collective");
}

Done finish_calls(const RankDevice &device, qcclComm_t comm) {
    if (!device.enqueues()) return {};
    QCCL_TRY(device.wait());
    qcclResult_t result = qcclSuccess;
    QCCL_TRY(explained(qcclCommGetAsyncError(comm, &result), "qcclCommGetAsyncError", comm));
    return explained(result == qcclInProgress ? qcclSuccess : result, "a call in a stream", comm);
}

} // namespace qccl::perf
