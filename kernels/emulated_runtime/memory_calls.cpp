// The emulated runtime's C API for memory: allocating, registering, copying, describing, and
// opening memory of other processes. Any thread may call. The calls that free or unregister memory
// outside a stream wait for its GPU, and qcclEmulatedMemcpy waits for the copy.
#include "kernels/emulated_runtime/runtime.hpp"

#include <cstring>

namespace qccl::emulated {
namespace {

using Kind = Piece::Kind;

Outcome put_copy(Runtime &runtime, const StreamPtr &stream, void *to, const void *from,
                 size_t bytes) {
    if (!stream) return qcclEmulatedErrorInvalidHandle;
    if (bytes > 0 && (!to || !from)) return qcclEmulatedErrorInvalidValue;
    if (!runtime.is_whole(to, bytes) || !runtime.is_whole(from, bytes))
        return {qcclEmulatedErrorInvalidValue, "a copy leads beyond memory of a GPU"};
    return runtime.put(stream, [=]() -> Outcome {
        if (bytes > 0) std::memmove(to, from, bytes);
        return {};
    });
}

// Releases memory after its GPU has done all of its work.
Outcome release_now(Runtime &runtime, Lock &lock, void *memory, std::initializer_list<Kind> kinds,
                    int32_t refusal) {
    const Piece *const piece = runtime.pieces.find(memory);
    if (!piece || piece->base != memory) return refusal;
    for (const PointPtr &point : runtime.everything(piece->device)) Workers::wait(lock, point);
    return runtime.pieces.release(memory, kinds, refusal);
}

Outcome free_now(Runtime &runtime, Lock &lock, void *memory, std::initializer_list<Kind> kinds) {
    if (!memory) return {};
    return release_now(runtime, lock, memory, kinds, qcclEmulatedErrorInvalidValue);
}

Outcome free_in_order(Runtime &runtime, const StreamPtr &stream, void *memory) {
    const auto release = [memory](Runtime &owner) {
        return owner.pieces.release(memory, {Kind::pooled, Kind::device},
                                    qcclEmulatedErrorInvalidValue);
    };
    const Piece *const piece = runtime.pieces.find(memory);
    if (!piece || piece->base != memory) return qcclEmulatedErrorInvalidValue;
    if (stream->capture)
        return runtime.refuse_capture(stream, qcclEmulatedErrorStreamCaptureUnsupported);
    const Outcome put = runtime.put(stream, [&runtime, release]() -> Outcome {
        const Lock lock(runtime.mutex);
        return release(runtime);
    });
    return put.is_ok() ? put : release(runtime); // the stream will never run it
}

} // namespace
} // namespace qccl::emulated

using namespace qccl::emulated;

qcclEmulatedResult_t qcclEmulatedMalloc(void **memory, size_t bytes) {
    return called(waits, [&](Runtime &runtime, Lock &) -> Outcome {
        if (!memory) return qcclEmulatedErrorInvalidValue;
        return runtime.pieces.allocate(Kind::device, self().device, bytes, memory);
    });
}

qcclEmulatedResult_t qcclEmulatedFree(void *memory) {
    return called(waits_and_gives_back, [&](Runtime &runtime, Lock &lock) {
        return free_now(runtime, lock, memory, {Kind::device, Kind::pooled});
    });
}

qcclEmulatedResult_t qcclEmulatedMallocAsync(void **memory, size_t bytes,
                                             qcclEmulatedStream_t handle) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (!stream) return qcclEmulatedErrorInvalidHandle;
        if (!memory) return qcclEmulatedErrorInvalidValue;
        if (stream->capture)
            return runtime.refuse_capture(stream, qcclEmulatedErrorStreamCaptureUnsupported);
        if (!stream->failure.is_ok()) return stream->failure;
        return runtime.pieces.allocate(Kind::pooled, stream->device, bytes, memory);
    });
}

qcclEmulatedResult_t qcclEmulatedFreeAsync(void *memory, qcclEmulatedStream_t handle) {
    return called(gives_back, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (!stream) return qcclEmulatedErrorInvalidHandle;
        return free_in_order(runtime, stream, memory);
    });
}

qcclEmulatedResult_t qcclEmulatedMallocHost(void **memory, size_t bytes) {
    return called(waits, [&](Runtime &runtime, Lock &) -> Outcome {
        if (!memory) return qcclEmulatedErrorInvalidValue;
        return runtime.pieces.allocate_host(self().device, bytes, memory);
    });
}

qcclEmulatedResult_t qcclEmulatedFreeHost(void *memory) {
    return called(waits_and_gives_back, [&](Runtime &runtime, Lock &lock) {
        return free_now(runtime, lock, memory, {Kind::host});
    });
}

qcclEmulatedResult_t qcclEmulatedHostRegister(void *memory, size_t bytes) {
    return called(waits, [&](Runtime &runtime, Lock &) {
        return runtime.pieces.register_host(self().device, memory, bytes);
    });
}

qcclEmulatedResult_t qcclEmulatedHostUnregister(void *memory) {
    return called(waits_and_gives_back, [&](Runtime &runtime, Lock &lock) {
        return release_now(runtime, lock, memory, {Kind::registered},
                           qcclEmulatedErrorHostMemoryNotRegistered);
    });
}

qcclEmulatedResult_t qcclEmulatedMemcpy(void *to, const void *from, size_t bytes) {
    return called(waits, [&](Runtime &runtime, Lock &lock) -> Outcome {
        const StreamPtr stream = runtime.stream(nullptr);
        if (Outcome put = put_copy(runtime, stream, to, from, bytes); !put.is_ok()) return put;
        return runtime.waited(stream->device, Workers::wait(lock, PointPtr(stream->last)));
    });
}

qcclEmulatedResult_t qcclEmulatedMemcpyAsync(void *to, const void *from, size_t bytes,
                                             qcclEmulatedStream_t handle) {
    return called(asks, [&](Runtime &runtime, Lock &) {
        return put_copy(runtime, runtime.stream(handle), to, from, bytes);
    });
}

qcclEmulatedResult_t qcclEmulatedMemsetAsync(void *memory, int value, size_t bytes,
                                             qcclEmulatedStream_t handle) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (!stream) return qcclEmulatedErrorInvalidHandle;
        if (bytes > 0 && !runtime.reaches(stream->device, memory, bytes))
            return qcclEmulatedErrorInvalidValue;
        return runtime.put(stream, [=]() -> Outcome {
            if (bytes > 0) std::memset(memory, value, bytes);
            return {};
        });
    });
}

qcclEmulatedResult_t qcclEmulatedPointerGetAttributes(qcclEmulatedPointerAttributes_t *attributes,
                                                      const void *memory) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        if (!attributes) return qcclEmulatedErrorInvalidValue;
        *attributes = {
            .type = qcclEmulatedMemoryTypeUnregistered, .device = -1, .base = nullptr, .bytes = 0};
        if (const Piece *const piece = runtime.pieces.find(memory))
            *attributes = {.type = piece->is_of_a_gpu() ? qcclEmulatedMemoryTypeDevice
                                                        : qcclEmulatedMemoryTypeHost,
                           .device = piece->device,
                           .base = piece->base,
                           .bytes = piece->bytes};
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedIpcGetMemHandle(qcclEmulatedIpcMemHandle_t *handle, void *memory) {
    return called(waits, [&](Runtime &runtime, Lock &) -> Outcome {
        if (!handle) return qcclEmulatedErrorInvalidValue;
        return runtime.pieces.name(memory, handle);
    });
}

qcclEmulatedResult_t qcclEmulatedIpcOpenMemHandle(void **memory,
                                                  const qcclEmulatedIpcMemHandle_t *handle) {
    return called(waits, [&](Runtime &runtime, Lock &) -> Outcome {
        if (!memory || !handle) return qcclEmulatedErrorInvalidValue;
        if (runtime.are_peers_forbidden && Pieces::device_of(*handle) != self().device)
            return qcclEmulatedErrorPeerAccessUnsupported;
        return runtime.pieces.open(*handle, memory);
    });
}

qcclEmulatedResult_t qcclEmulatedIpcCloseMemHandle(void *memory) {
    return called(waits_and_gives_back,
                  [&](Runtime &runtime, Lock &) { return runtime.pieces.close(memory); });
}
