// What the CUDA and HIP runtimes spell alike except for the prefix, which the including file gives
// as QCCL_RUNTIME(name). Included by runtime_cuda.hpp and runtime_hip.hpp alone.
#pragma once

#include "base/text.hpp"
#include "device/gpu.hpp"
#include "kernels/gpu/gpu_kernels.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace qccl::runtime {

using Status = QCCL_RUNTIME(Error_t);
using Stream = QCCL_RUNTIME(Stream_t);
using Event = QCCL_RUNTIME(Event_t);
using Handle = QCCL_RUNTIME(IpcMemHandle_t);
using Uuid = std::array<std::byte, 16>;
using Pool = QCCL_RUNTIME(MemPool_t);

inline constexpr Status success = QCCL_RUNTIME(Success);
inline bool is_ok(Status status) { return status == QCCL_RUNTIME(Success); }
inline bool is_not_ready(Status status) { return status == QCCL_RUNTIME(ErrorNotReady); }
inline bool is_enabled_already(Status status) {
    return status == QCCL_RUNTIME(ErrorPeerAccessAlreadyEnabled);
}
// Resets the thread's last error, which the program reads for its own calls.
inline void forget(Status status) {
    if (!is_ok(status)) static_cast<void>(QCCL_RUNTIME(GetLastError)());
}

inline Status count(int *devices) { return QCCL_RUNTIME(GetDeviceCount)(devices); }
template <class Properties> void describe(const Properties &properties, GpuTraits &traits) {
    traits.model = properties.name;
    traits.bus_id = pci_address(static_cast<unsigned>(properties.pciDomainID),
                                static_cast<unsigned>(properties.pciBusID),
                                static_cast<unsigned>(properties.pciDeviceID));
    traits.lanes = static_cast<uint32_t>(properties.warpSize);
    traits.multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
}
inline Status load_kernels() {
    QCCL_RUNTIME(FuncAttributes) ignored;
    for (size_t id = 0; id < kernel_count; id++) {
        const auto kernel = gpu::kernel(static_cast<KernelId>(id));
        const Status status =
            QCCL_RUNTIME(FuncGetAttributes)(&ignored, reinterpret_cast<const void *>(kernel));
        if (!is_ok(status)) return status;
    }
    return success;
}

inline Status allocate(void **memory, size_t bytes) { return QCCL_RUNTIME(Malloc)(memory, bytes); }
// Creates a pool for the library. In the GPU's own pool a stream of the library may have to wait
// for a user's stream that has freed the same memory, and the user's stream may be waiting for a
// host word. This pool keeps its memory, because returning memory to the system takes time at every
// call.
inline Status create_pool(Pool *pool, int device) {
    QCCL_RUNTIME(MemPoolProps) properties{};
    properties.allocType = QCCL_RUNTIME(MemAllocationTypePinned);
    properties.location = {.type = QCCL_RUNTIME(MemLocationTypeDevice), .id = device};
    if (const Status status = QCCL_RUNTIME(MemPoolCreate)(pool, &properties); !is_ok(status))
        return status;
    int no = 0;
    uint64_t everything = UINT64_MAX;
    const std::pair<QCCL_RUNTIME(MemPoolAttr), void *> settings[] = {
        {QCCL_RUNTIME(MemPoolReuseAllowInternalDependencies), &no},
        {QCCL_RUNTIME(MemPoolReuseAllowOpportunistic), &no},
        {QCCL_RUNTIME(MemPoolAttrReleaseThreshold), &everything}};
    for (const auto &[attribute, value] : settings)
        if (const Status status = QCCL_RUNTIME(MemPoolSetAttribute)(*pool, attribute, value);
            !is_ok(status))
            return status;
    return success;
}
inline Status destroy(Pool pool) { return pool ? QCCL_RUNTIME(MemPoolDestroy)(pool) : success; }
inline Status pin(void *memory, size_t bytes) {
    return QCCL_RUNTIME(HostRegister)(
        memory, bytes, QCCL_RUNTIME(HostRegisterPortable) | QCCL_RUNTIME(HostRegisterMapped));
}
inline Status unpin(void *memory) { return QCCL_RUNTIME(HostUnregister)(memory); }

inline Status name(Handle *handle, void *memory) {
    return QCCL_RUNTIME(IpcGetMemHandle)(handle, memory);
}
inline Status open(void **memory, const Handle &handle) {
    return QCCL_RUNTIME(IpcOpenMemHandle)(memory, handle, QCCL_RUNTIME(IpcMemLazyEnablePeerAccess));
}
inline Status close(void *memory) { return QCCL_RUNTIME(IpcCloseMemHandle)(memory); }
inline Status can_reach(int *can, int device, int peer) {
    return QCCL_RUNTIME(DeviceCanAccessPeer)(can, device, peer);
}
inline Status reach(int peer) { return QCCL_RUNTIME(DeviceEnablePeerAccess)(peer, 0); }

inline Status find_priorities(int *least, int *greatest) {
    return QCCL_RUNTIME(DeviceGetStreamPriorityRange)(least, greatest);
}
inline Status create(Stream *stream, int priority) {
    return QCCL_RUNTIME(StreamCreateWithPriority)(stream, QCCL_RUNTIME(StreamNonBlocking),
                                                  priority);
}
inline Status priority_of(Stream stream, int *priority) {
    return QCCL_RUNTIME(StreamGetPriority)(stream, priority);
}
inline Status destroy(Stream stream) { return QCCL_RUNTIME(StreamDestroy)(stream); }
inline Status synchronize(Stream stream) { return QCCL_RUNTIME(StreamSynchronize)(stream); }
inline Status capture_of(Stream stream, uint64_t *capture) {
    QCCL_RUNTIME(StreamCaptureStatus) answer = QCCL_RUNTIME(StreamCaptureStatusNone);
    unsigned long long id = 0;
    const Status status = QCCL_RUNTIME(StreamGetCaptureInfo)(stream, &answer, &id);
    const bool is_active = answer == QCCL_RUNTIME(StreamCaptureStatusActive);
    *capture = is_active ? id : answer == QCCL_RUNTIME(StreamCaptureStatusNone) ? 0 : UINT64_MAX;
    return status;
}
inline Status launch(Stream stream, KernelId kernel, unsigned blocks, const Batch &batch) {
    void *arguments[] = {const_cast<Batch *>(&batch)};
    return QCCL_RUNTIME(LaunchKernel)(reinterpret_cast<const void *>(gpu::kernel(kernel)),
                                      dim3(blocks), dim3(block_threads), arguments, 0, stream);
}
inline Status copy(Stream stream, void *to, const void *from, size_t bytes) {
    return QCCL_RUNTIME(MemcpyAsync)(to, from, bytes, QCCL_RUNTIME(MemcpyDefault), stream);
}
inline Status zero(Stream stream, void *memory, size_t bytes) {
    return QCCL_RUNTIME(MemsetAsync)(memory, 0, bytes, stream);
}

inline Status create(Event *event) {
    return QCCL_RUNTIME(EventCreateWithFlags)(event, QCCL_RUNTIME(EventDisableTiming));
}
inline Status destroy(Event event) { return QCCL_RUNTIME(EventDestroy)(event); }
inline Status record(Event event, Stream stream) {
    return QCCL_RUNTIME(EventRecord)(event, stream);
}
inline Status await(Stream stream, Event event) {
    return QCCL_RUNTIME(StreamWaitEvent)(stream, event, 0);
}
inline Status query(Event event) { return QCCL_RUNTIME(EventQuery)(event); }

} // namespace qccl::runtime

#undef QCCL_RUNTIME
