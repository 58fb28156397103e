// The emulated runtime under the names that module.cu uses for every vendor's runtime.
#pragma once

#include "base/text.hpp"
#include "device/gpu.hpp"
#include "kernels/runtime/emulated/emulated_runtime.hpp"

#include <cstring>

namespace qccl::runtime {

inline constexpr const char *vendor = "emulated";

using Status = qcclEmulatedResult_t;
using Stream = qcclEmulatedStream_t;
using Event = qcclEmulatedEvent_t;
using Handle = qcclEmulatedIpcMemHandle_t;
using Uuid = std::array<std::byte, 16>;
struct EmulatedPool {}; // stream-ordered memory is never reused here
using Pool = EmulatedPool;

inline constexpr Status success = qcclEmulatedSuccess;
inline bool is_ok(Status status) { return status == qcclEmulatedSuccess; }
inline bool is_not_ready(Status status) { return status == qcclEmulatedErrorNotReady; }
inline bool is_enabled_already(Status status) {
    return status == qcclEmulatedErrorPeerAccessAlreadyEnabled;
}
inline bool is_misuse(Status status) {
    return status == qcclEmulatedErrorInvalidHandle ||
           status == qcclEmulatedErrorStreamCaptureImplicit;
}
inline const char *text(Status) { return qcclEmulatedGetErrorSentence(); }
inline void forget(Status) {} // only other runtimes keep a last error

// Selects the thread's GPU for a while, and allows the thread to make calls that would otherwise
// break captures of other threads.
class EmulatedDeviceGuard {
public:
    explicit EmulatedDeviceGuard(int device) {
        status_ = qcclEmulatedGetDevice(&before_);
        if (is_ok(status_)) status_ = qcclEmulatedSetDevice(device);
        if (is_ok(status_)) qcclEmulatedThreadExchangeCaptureMode(&mode_);
    }
    ~EmulatedDeviceGuard() {
        if (!is_ok(status_)) return;
        qcclEmulatedThreadExchangeCaptureMode(&mode_);
        qcclEmulatedSetDevice(before_);
    }
    EmulatedDeviceGuard(const EmulatedDeviceGuard &) = delete;
    EmulatedDeviceGuard &operator=(const EmulatedDeviceGuard &) = delete;

    Status status() const { return status_; }

private:
    Status status_ = success;
    int before_ = 0;
    qcclEmulatedCaptureMode_t mode_ = qcclEmulatedCaptureModeRelaxed;
};
using DeviceGuard = EmulatedDeviceGuard;

inline Status prepare(int) { return success; }
inline Status count(int *devices) { return qcclEmulatedGetDeviceCount(devices); }
inline Status describe(int device, GpuTraits &traits, Uuid &uuid) {
    qcclEmulatedDeviceProp_t properties;
    const Status status = qcclEmulatedGetDeviceProperties(&properties, device);
    if (!is_ok(status)) return status;
    traits.model = properties.name;
    if (properties.pciBusID >= 0)
        traits.bus_id = pci_address(static_cast<unsigned>(properties.pciDomainID),
                                    static_cast<unsigned>(properties.pciBusID),
                                    static_cast<unsigned>(properties.pciDeviceID));
    traits.lanes = static_cast<uint32_t>(properties.warpSize);
    traits.multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
    traits.has_stream_waits = true;
    traits.can_capture = true;
    traits.has_gpu_barrier = true;
    traits.threads = "emulated-gpu";
    std::memcpy(uuid.data(), properties.uuid, uuid.size());
    return status;
}

inline Status load_kernels() { return success; } // the kernels are part of the program

inline Status allocate(void **memory, size_t bytes) { return qcclEmulatedMalloc(memory, bytes); }
inline Status create(Pool *, int) { return success; }
inline Status destroy(Pool) { return success; }
inline Status allocate_in_order(void **memory, size_t bytes, Pool, Stream stream) {
    return qcclEmulatedMallocAsync(memory, bytes, stream);
}
inline Status free_in_order(void *memory, Pool, Stream stream) {
    return qcclEmulatedFreeAsync(memory, stream);
}
inline Status allocate_pinned(void **memory, size_t bytes) {
    return qcclEmulatedMallocHost(memory, bytes);
}
inline Status pin(void *memory, size_t bytes) { return qcclEmulatedHostRegister(memory, bytes); }
inline Status unpin(void *memory) { return qcclEmulatedHostUnregister(memory); }

inline Status find(const void *memory, GpuPlace &place) {
    qcclEmulatedPointerAttributes_t found;
    const Status status = qcclEmulatedPointerGetAttributes(&found, memory);
    if (!is_ok(status)) return status;
    place = {};
    if (found.type == qcclEmulatedMemoryTypeHost) place.kind = GpuPlace::Kind::pinned;
    if (found.type == qcclEmulatedMemoryTypeDevice)
        place = {.kind = GpuPlace::Kind::gpu, .number = static_cast<uint32_t>(found.device)};
    return status;
}
inline Status find_base(void *memory, void **base) {
    qcclEmulatedPointerAttributes_t found;
    const Status status = qcclEmulatedPointerGetAttributes(&found, memory);
    if (is_ok(status)) *base = found.base;
    return status;
}

inline Status name(Handle *handle, void *memory) {
    return qcclEmulatedIpcGetMemHandle(handle, memory);
}
inline Status open(void **memory, const Handle &handle) {
    return qcclEmulatedIpcOpenMemHandle(memory, &handle);
}
inline Status close(void *memory) { return qcclEmulatedIpcCloseMemHandle(memory); }
inline Status can_reach(int *can, int device, int peer) {
    return qcclEmulatedDeviceCanAccessPeer(can, device, peer);
}
inline Status reach(int peer) { return qcclEmulatedDeviceEnablePeerAccess(peer); }

inline Status find_priorities(int *least, int *greatest) {
    return qcclEmulatedDeviceGetStreamPriorityRange(least, greatest);
}
inline Status create(Stream *stream, int priority) {
    return qcclEmulatedStreamCreateWithPriority(stream, qcclEmulatedStreamNonBlocking, priority);
}
inline Status priority_of(Stream stream, int *priority) {
    return qcclEmulatedStreamGetPriority(stream, priority);
}
inline Status destroy(Stream stream) { return qcclEmulatedStreamDestroy(stream); }
inline Status synchronize(Stream stream) { return qcclEmulatedStreamSynchronize(stream); }
inline Status capture_of(Stream stream, uint64_t *capture) {
    return qcclEmulatedStreamGetCapture(stream, capture);
}
inline Status tie_to_graph(Stream stream, void (*end)(void *), void *context) {
    const Status status = qcclEmulatedCaptureUserObject(stream, end, context);
    if (!is_ok(status)) end(context);
    return status;
}
inline Status launch(Stream stream, KernelId kernel, unsigned blocks, const Batch &batch) {
    return emulated::launch(stream, kernel, blocks, batch);
}
inline Status copy(Stream stream, void *to, const void *from, size_t bytes) {
    return qcclEmulatedMemcpyAsync(to, from, bytes, stream);
}
inline Status zero(Stream stream, void *memory, size_t bytes) {
    return qcclEmulatedMemsetAsync(memory, 0, bytes, stream);
}
inline Status call_host(Stream stream, void (*function)(void *), void *context) {
    return qcclEmulatedLaunchHostFunc(stream, function, context);
}

inline Status create(Event *event) { return qcclEmulatedEventCreate(event); }
inline Status destroy(Event event) { return qcclEmulatedEventDestroy(event); }
inline Status record(Event event, Stream stream) { return qcclEmulatedEventRecord(event, stream); }
inline Status await(Stream stream, Event event) {
    return qcclEmulatedStreamWaitEvent(stream, event);
}
inline Status query(Event event) { return qcclEmulatedEventQuery(event); }
inline Status await_value(Stream stream, const uint32_t *at, uint32_t value) {
    return qcclEmulatedStreamWaitValue32(stream, at, value);
}

} // namespace qccl::runtime
