// AMD's runtime, of ROCm 5.2 or newer, under the names that module.cu uses for every vendor's
// runtime. This runtime has no stream waits: a stream that waits for a host word would hold a
// compute unit.
#pragma once

#include "base/text.hpp"
#include "device/gpu.hpp"
#include "kernels/gpu/gpu_kernels.hpp"

#include <cstring>
#include <memory>
#include <utility>

#include <hip/hip_runtime.h>

namespace qccl::runtime {

inline constexpr const char *vendor = "hip";

using Status = hipError_t;
using Stream = hipStream_t;
using Event = hipEvent_t;
using Handle = hipIpcMemHandle_t;
using Uuid = std::array<std::byte, 16>;
using Pool = hipMemPool_t;

inline constexpr Status success = hipSuccess;
inline bool is_ok(Status status) { return status == hipSuccess; }
inline bool is_not_ready(Status status) { return status == hipErrorNotReady; }
inline bool is_enabled_already(Status status) { return status == hipErrorPeerAccessAlreadyEnabled; }
inline bool is_misuse(Status status) { return status == hipErrorInvalidHandle; }
inline const char *text(Status status) { return hipGetErrorString(status); }
// Resets the thread's last error, which the program reads for its own calls.
inline void forget(Status status) {
    if (!is_ok(status)) static_cast<void>(hipGetLastError());
}

// Selects the thread's GPU for a while, and allows the thread to make calls that would otherwise
// break captures of other threads.
class HipDeviceGuard {
public:
    explicit HipDeviceGuard(int device) {
        status_ = hipGetDevice(&before_);
        if (is_ok(status_)) status_ = hipSetDevice(device);
#if HIP_VERSION_MAJOR >= 6
        if (is_ok(status_)) forget(hipThreadExchangeStreamCaptureMode(&mode_));
#endif
    }
    ~HipDeviceGuard() {
        if (!is_ok(status_)) return;
#if HIP_VERSION_MAJOR >= 6
        forget(hipThreadExchangeStreamCaptureMode(&mode_));
#endif
        forget(hipSetDevice(before_));
    }
    HipDeviceGuard(const HipDeviceGuard &) = delete;
    HipDeviceGuard &operator=(const HipDeviceGuard &) = delete;

    Status status() const { return status_; }

private:
    Status status_ = success;
    int before_ = 0;
#if HIP_VERSION_MAJOR >= 6
    hipStreamCaptureMode mode_ = hipStreamCaptureModeRelaxed;
#endif
};
using DeviceGuard = HipDeviceGuard;

inline Status prepare(int device) {
    int devices = 0;
    if (const Status status = hipGetDeviceCount(&devices); !is_ok(status)) return status;
    return device < devices ? hipSuccess : hipErrorInvalidDevice;
}
inline Status count(int *devices) { return hipGetDeviceCount(devices); }
inline Status describe(int device, GpuTraits &traits, Uuid &uuid) {
    hipDeviceProp_t properties;
    if (const Status status = hipGetDeviceProperties(&properties, device); !is_ok(status))
        return status;
    traits.model = properties.name;
    traits.bus_id = pci_address(static_cast<unsigned>(properties.pciDomainID),
                                static_cast<unsigned>(properties.pciBusID),
                                static_cast<unsigned>(properties.pciDeviceID));
    traits.lanes = static_cast<uint32_t>(properties.warpSize);
    traits.multiprocessors = static_cast<uint32_t>(properties.multiProcessorCount);
    traits.can_meet = false; // not proven where memory may be coarse-grained
    hipUUID found;
    const Status status = hipDeviceGetUuid(&found, device);
    std::memcpy(uuid.data(), found.bytes, uuid.size());
    return status;
}

inline Status load_kernels() {
    hipFuncAttributes ignored;
    for (size_t id = 0; id < kernel_count; id++) {
        const auto kernel = gpu::kernel(static_cast<KernelId>(id));
        const Status status =
            hipFuncGetAttributes(&ignored, reinterpret_cast<const void *>(kernel));
        if (!is_ok(status)) return status;
    }
    return success;
}

// Creates a pool for the library. In the GPU's own pool a stream of the library may have to wait
// for a user's stream that has freed the same memory. This pool keeps its memory, because returning
// memory to the system takes time at every call. The pool stays null if the GPU has no pools:
// freeing memory then waits for all work of the GPU.
inline Status create(Pool *pool, int device) {
    int has = 0;
    forget(hipDeviceGetAttribute(&has, hipDeviceAttributeMemoryPoolsSupported, device));
    if (has == 0) return success;
    hipMemPoolProps properties{};
    properties.allocType = hipMemAllocationTypePinned;
    properties.location = {.type = hipMemLocationTypeDevice, .id = device};
    if (const Status status = hipMemPoolCreate(pool, &properties); !is_ok(status)) return status;
    int no = 0;
    uint64_t everything = UINT64_MAX;
    const std::pair<hipMemPoolAttr, void *> settings[] = {
        {hipMemPoolReuseAllowInternalDependencies, &no},
        {hipMemPoolReuseAllowOpportunistic, &no},
        {hipMemPoolAttrReleaseThreshold, &everything}};
    for (const auto &[attribute, value] : settings)
        if (const Status status = hipMemPoolSetAttribute(*pool, attribute, value); !is_ok(status))
            return status;
    return success;
}
inline Status destroy(Pool pool) { return pool ? hipMemPoolDestroy(pool) : success; }
inline Status allocate(void **memory, size_t bytes) { return hipMalloc(memory, bytes); }
inline Status allocate_in_order(void **memory, size_t bytes, Pool pool, Stream stream) {
    return pool ? hipMallocFromPoolAsync(memory, bytes, pool, stream) : hipMalloc(memory, bytes);
}
inline Status free_in_order(void *memory, Pool pool, Stream stream) {
    return pool ? hipFreeAsync(memory, stream) : hipFree(memory);
}
inline Status allocate_pinned(void **memory, size_t bytes) {
    return hipHostMalloc(memory, bytes, hipHostMallocPortable | hipHostMallocMapped);
}
inline Status pin(void *memory, size_t bytes) {
    return hipHostRegister(memory, bytes, hipHostRegisterPortable | hipHostRegisterMapped);
}
inline Status unpin(void *memory) { return hipHostUnregister(memory); }

inline Status find(const void *memory, GpuPlace &place) {
    hipPointerAttribute_t found{};
    place = {};
    const Status status = hipPointerGetAttributes(&found, memory);
    if (status == hipErrorInvalidValue) { // memory that the runtime does not know
        forget(status);
        return hipSuccess;
    }
    if (!is_ok(status)) return status;
#if HIP_VERSION_MAJOR >= 6
    const hipMemoryType type = found.type;
#else
    const hipMemoryType type = found.memoryType;
#endif
    const auto of_a_gpu = [&](GpuPlace::Kind kind) {
        place = {.kind = kind, .number = static_cast<uint32_t>(found.device)};
    };
    if (found.isManaged)
        of_a_gpu(GpuPlace::Kind::managed);
    else if (type == hipMemoryTypeHost)
        place.kind = GpuPlace::Kind::pinned;
    else if (type == hipMemoryTypeDevice)
        of_a_gpu(GpuPlace::Kind::gpu);
    return status;
}
inline Status find_base(void *memory, void **base) {
    size_t bytes = 0;
    return hipMemGetAddressRange(base, &bytes, memory);
}

inline Status name(Handle *handle, void *memory) { return hipIpcGetMemHandle(handle, memory); }
inline Status open(void **memory, const Handle &handle) {
    return hipIpcOpenMemHandle(memory, handle, hipIpcMemLazyEnablePeerAccess);
}
inline Status close(void *memory) { return hipIpcCloseMemHandle(memory); }
inline Status can_reach(int *can, int device, int peer) {
    return hipDeviceCanAccessPeer(can, device, peer);
}
inline Status reach(int peer) { return hipDeviceEnablePeerAccess(peer, 0); }

inline Status find_priorities(int *least, int *greatest) {
    return hipDeviceGetStreamPriorityRange(least, greatest);
}
inline Status create(Stream *stream, int priority) {
    return hipStreamCreateWithPriority(stream, hipStreamNonBlocking, priority);
}
inline Status priority_of(Stream stream, int *priority) {
    return hipStreamGetPriority(stream, priority);
}
inline Status destroy(Stream stream) { return hipStreamDestroy(stream); }
inline Status synchronize(Stream stream) { return hipStreamSynchronize(stream); }
inline Status capture_of(Stream stream, uint64_t *capture) {
    hipStreamCaptureStatus answer = hipStreamCaptureStatusNone;
    unsigned long long id = 0;
    const Status status = hipStreamGetCaptureInfo(stream, &answer, &id);
    const bool is_active = answer == hipStreamCaptureStatusActive;
    *capture = is_active ? id : answer == hipStreamCaptureStatusNone ? 0 : UINT64_MAX;
    return status;
}
inline Status tie_to_graph(Stream, void (*end)(void *), void *context) {
    end(context);
    return hipErrorNotSupported;
}
inline Status launch(Stream stream, KernelId kernel, unsigned blocks, const Batch &batch) {
    void *arguments[] = {const_cast<Batch *>(&batch)};
    return hipLaunchKernel(reinterpret_cast<const void *>(gpu::kernel(kernel)), dim3(blocks),
                           dim3(block_threads), arguments, 0, stream);
}
inline Status copy(Stream stream, void *to, const void *from, size_t bytes) {
    return hipMemcpyAsync(to, from, bytes, hipMemcpyDefault, stream);
}
inline Status zero(Stream stream, void *memory, size_t bytes) {
    return hipMemsetAsync(memory, 0, bytes, stream);
}

inline Status call_host(Stream stream, void (*function)(void *), void *context) {
#if HIP_VERSION_MAJOR >= 6
    return hipLaunchHostFunc(stream, function, context);
#else
    struct HostCall {
        void (*function)(void *);
        void *context;
    };
    auto call = std::make_unique<HostCall>(HostCall{function, context});
    const Status status = hipStreamAddCallback(
        stream,
        [](hipStream_t, Status before, void *data) {
            const std::unique_ptr<HostCall> its(static_cast<HostCall *>(data));
            if (is_ok(before)) its->function(its->context);
        },
        call.get(), 0);
    if (is_ok(status)) call.release();
    return status;
#endif
}

inline Status create(Event *event) { return hipEventCreateWithFlags(event, hipEventDisableTiming); }
inline Status destroy(Event event) { return hipEventDestroy(event); }
inline Status record(Event event, Stream stream) { return hipEventRecord(event, stream); }
inline Status await(Stream stream, Event event) { return hipStreamWaitEvent(stream, event, 0); }
inline Status query(Event event) { return hipEventQuery(event); }
inline Status await_value(Stream, const uint32_t *, uint32_t) { return hipErrorNotSupported; }

} // namespace qccl::runtime
