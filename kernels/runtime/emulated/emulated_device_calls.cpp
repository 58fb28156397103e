// The emulated runtime's C API for GPUs, results and memory (allocating, registering, copying,
// describing, and opening memory of other processes), and the calls that only tests use. Any thread
// may call. qcclEmulatedDeviceSynchronize waits for a GPU. The calls that free or unregister memory
// outside a stream wait for its GPU, and qcclEmulatedMemcpy waits for the copy.

#include "kernels/runtime/emulated/emulated_runtime.hpp"

#include <cstdio>
#include <cstring>

using namespace qccl::emulated;

static bool is_device(int device) { return device >= 0 && device < device_count; }

const char *qcclEmulatedGetErrorString(qcclEmulatedResult_t result) {
    switch (result) {
    case qcclEmulatedSuccess: return "no error";
    case qcclEmulatedErrorInvalidValue: return "invalid argument";
    case qcclEmulatedErrorMemoryAllocation: return "out of memory";
    case qcclEmulatedErrorInitialization: return "initialization error";
    case qcclEmulatedErrorInvalidDevice: return "invalid device ordinal";
    case qcclEmulatedErrorPeerAccessUnsupported:
        return "peer access is not supported between these two devices";
    case qcclEmulatedErrorInvalidHandle: return "invalid resource handle";
    case qcclEmulatedErrorNotReady: return "device not ready";
    case qcclEmulatedErrorIllegalAddress: return "an illegal memory access was encountered";
    case qcclEmulatedErrorPeerAccessAlreadyEnabled: return "peer access is already enabled";
    case qcclEmulatedErrorHostMemoryAlreadyRegistered:
        return "part or all of the requested memory range is already mapped";
    case qcclEmulatedErrorHostMemoryNotRegistered:
        return "pointer does not correspond to a registered memory region";
    case qcclEmulatedErrorLaunchFailure: return "unspecified launch failure";
    case qcclEmulatedErrorGuardBytes: return "something has written beside memory of a GPU";
    case qcclEmulatedErrorNotPermitted: return "operation not permitted";
    case qcclEmulatedErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case qcclEmulatedErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    case qcclEmulatedErrorStreamCaptureUnmatched:
        return "stream did not begin the capture that is to end";
    case qcclEmulatedErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case qcclEmulatedErrorStreamCaptureIsolation:
        return "dependency created on uncaptured work in another stream";
    case qcclEmulatedErrorStreamCaptureImplicit:
        return "operation would make the legacy stream depend on a capturing blocking stream";
    case qcclEmulatedErrorCapturedEvent:
        return "operation not permitted on an event last recorded in a capturing stream";
    case qcclEmulatedErrorStreamCaptureWrongThread:
        return "attempt to terminate a thread-local capture sequence from another thread";
    default: return "unrecognized error code";
    }
}

const char *qcclEmulatedGetErrorSentence(void) { return self().sentence.c_str(); }

qcclEmulatedResult_t qcclEmulatedGetDeviceCount(int *count) {
    return called(asks, [&](Runtime &, Lock &) -> Outcome {
        if (!count) return qcclEmulatedErrorInvalidValue;
        *count = device_count;
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedSetDevice(int device) {
    return called(tells, [&](Runtime &, Lock &) -> Outcome {
        if (!is_device(device)) return qcclEmulatedErrorInvalidDevice;
        self().device = device;
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedGetDevice(int *device) {
    return called(tells, [&](Runtime &, Lock &) -> Outcome {
        if (!device) return qcclEmulatedErrorInvalidValue;
        *device = self().device;
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedDeviceSynchronize(void) {
    return called(waits, [&](Runtime &runtime, Lock &lock) {
        return runtime.wait_for_everything(lock, self().device);
    });
}

qcclEmulatedResult_t qcclEmulatedGetDeviceProperties(qcclEmulatedDeviceProp_t *properties,
                                                     int device) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        if (!properties) return qcclEmulatedErrorInvalidValue;
        if (!is_device(device)) return qcclEmulatedErrorInvalidDevice;
        *properties = {};
        properties->warpSize = lanes_of(device);
        properties->multiProcessorCount = 2; // few blocks, so that warps take several turns
        properties->totalGlobalMem = size_t{16} << 30;
        std::snprintf(properties->name, sizeof properties->name, "emulated GPU of %d lanes",
                      properties->warpSize);
        std::memcpy(properties->uuid, "emulated GPU", 12);
        properties->uuid[15] = static_cast<unsigned char>(device);
        const PciSlot &slot = runtime.slots[static_cast<size_t>(device)];
        properties->pciDomainID = slot.domain;
        properties->pciBusID = slot.bus;
        properties->pciDeviceID = slot.device;
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedDeviceCanAccessPeer(int *can, int device, int peer) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        if (!can) return qcclEmulatedErrorInvalidValue;
        if (!is_device(device) || !is_device(peer)) return qcclEmulatedErrorInvalidDevice;
        *can = device != peer && !runtime.are_peers_forbidden ? 1 : 0;
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedDeviceEnablePeerAccess(int peer) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        if (!is_device(peer) || peer == self().device) return qcclEmulatedErrorInvalidDevice;
        if (runtime.are_peers_forbidden) return qcclEmulatedErrorPeerAccessUnsupported;
        bool &is_enabled =
            runtime.peers[static_cast<size_t>(self().device)][static_cast<size_t>(peer)];
        if (is_enabled) return qcclEmulatedErrorPeerAccessAlreadyEnabled;
        is_enabled = true;
        return {};
    });
}

// ---- For tests

template <class Body> static void with_runtime(Body &&body) {
    Runtime &runtime = Runtime::current();
    const Lock lock(runtime.mutex);
    body(runtime);
}

void qcclEmulatedFailCall(uint64_t n, qcclEmulatedResult_t result) {
    with_runtime([&](Runtime &runtime) {
        runtime.fails_in = n;
        runtime.failure = result;
    });
}

void qcclEmulatedFailWork(uint64_t n, qcclEmulatedResult_t result) {
    with_runtime([&](Runtime &runtime) { runtime.workers.fail_work(n, result); });
}

uint64_t qcclEmulatedCountCalls(void) {
    uint64_t calls = 0;
    with_runtime([&](const Runtime &runtime) { calls = runtime.calls; });
    return calls;
}

size_t qcclEmulatedCountHeld(void) {
    size_t held = 0;
    with_runtime([&](const Runtime &runtime) {
        held = runtime.pieces.count() + runtime.streams.size() + runtime.events.size() +
               runtime.graphs.size() + runtime.execs.size();
    });
    return held;
}

void qcclEmulatedLimitMemory(size_t bytes) {
    with_runtime([&](Runtime &runtime) { runtime.pieces.limit(bytes); });
}

void qcclEmulatedForbidPeers(int are_forbidden) {
    with_runtime([&](Runtime &runtime) { runtime.are_peers_forbidden = are_forbidden != 0; });
}

void qcclEmulatedPlugIn(int device, int domain, int bus, int slot) {
    if (!is_device(device)) return;
    with_runtime([&](Runtime &runtime) {
        runtime.slots[static_cast<size_t>(device)] = {domain, bus, slot};
    });
}

void qcclEmulatedBeginAgain(void) { Runtime::begin_again(); }

namespace qccl::emulated {

// ---- Memory

namespace {

using Kind = MemoryPiece::Kind;

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
    const MemoryPiece *const piece = runtime.pieces.find(memory);
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
    const MemoryPiece *const piece = runtime.pieces.find(memory);
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
        if (const MemoryPiece *const piece = runtime.pieces.find(memory))
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
        if (runtime.are_peers_forbidden && MemoryPieces::device_of(*handle) != self().device)
            return qcclEmulatedErrorPeerAccessUnsupported;
        return runtime.pieces.open(*handle, memory);
    });
}

qcclEmulatedResult_t qcclEmulatedIpcCloseMemHandle(void *memory) {
    return called(waits_and_gives_back,
                  [&](Runtime &runtime, Lock &) { return runtime.pieces.close(memory); });
}
