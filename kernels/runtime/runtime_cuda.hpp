// NVIDIA's runtime under the names that module.cu uses for every vendor's runtime. The module does
// not link the driver: functions that only the driver has are looked up at run time.
#pragma once

#include <atomic>
#include <cstring>

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#define QCCL_RUNTIME(name) cuda##name
#include "kernels/runtime/runtime_alike.hpp"

namespace qccl::runtime {

inline constexpr const char *vendor = "cuda";

// Returns true for errors of a stream that is invalid, belongs to another GPU or stands in the way
// of a capture.
inline bool is_misuse(Status status) {
    return status == cudaErrorInvalidResourceHandle || status == cudaErrorStreamCaptureImplicit;
}
inline const char *text(Status status) {
    int version = 0;
    if (status == cudaErrorInsufficientDriver && cudaDriverGetVersion(&version) == cudaSuccess &&
        version == 0)
        return "there is no driver"; // the runtime would report an old driver
    return cudaGetErrorString(status);
}

// Functions that only the driver has; null if this driver lacks them.
struct Driver {
    PFN_cuDeviceGet_v2000 get_device = nullptr;
    PFN_cuDevicePrimaryCtxRetain_v7000 retain = nullptr;
    PFN_cuCtxPushCurrent_v4000 push = nullptr;
    PFN_cuCtxPopCurrent_v4000 pop = nullptr;
    PFN_cuMemGetAddressRange_v3020 find_range = nullptr;
    PFN_cuStreamWaitValue32_v11070 await_value = nullptr;
};

template <class Function>
void find_in_driver(const char *name, unsigned version, Function &function) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult how{};
#if CUDART_VERSION >= 12050
    const Status status =
        cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &how);
#else
    (void)version;
    const Status status = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &how);
#endif
    forget(status);
    if (is_ok(status) && how == cudaDriverEntryPointSuccess)
        function = reinterpret_cast<Function>(found);
}

// Looks the functions up once: a process has one driver.
inline const Driver &driver() {
    static const Driver driver = [] {
        Driver found;
        find_in_driver("cuDeviceGet", 2000, found.get_device);
        find_in_driver("cuDevicePrimaryCtxRetain", 7000, found.retain);
        find_in_driver("cuCtxPushCurrent", 4000, found.push);
        find_in_driver("cuCtxPopCurrent", 4000, found.pop);
        find_in_driver("cuMemGetAddressRange", 3020, found.find_range);
        find_in_driver("cuStreamWaitValue32", 11070, found.await_value);
        return found;
    }();
    return driver;
}

// The runtime uses the driver's numbers for the driver's errors.
inline Status status_of(CUresult result) { return static_cast<Status>(result); }

// The runtime's context of each GPU; the process keeps it.
inline constexpr int most_devices = 256;
inline std::atomic<CUcontext> &context(int device) {
    static std::array<std::atomic<CUcontext>, most_devices> contexts{};
    return contexts[static_cast<size_t>(device)];
}
inline Status prepare(int device) {
    int devices = 0;
    if (const Status status = cudaGetDeviceCount(&devices); !is_ok(status)) return status;
    if (device >= devices || device >= most_devices) return cudaErrorInvalidDevice;
    if (context(device).load()) return cudaSuccess;
    const Driver &now = driver();
    if (!now.get_device || !now.retain || !now.push || !now.pop) return cudaErrorNotSupported;
    CUdevice own = 0;
    CUcontext made = nullptr;
    if (const CUresult result = now.get_device(&own, device); result != CUDA_SUCCESS)
        return status_of(result);
    if (const CUresult result = now.retain(&made, own); result != CUDA_SUCCESS)
        return status_of(result);
    context(device).store(made);
    return cudaSuccess;
}

// Selects the thread's GPU for a while, and allows the thread to make calls that would otherwise
// break captures of other threads. The guard pushes contexts, because setting the thread's GPU back
// to its first one would create a context there that the program may not want.
class CudaDeviceGuard {
public:
    explicit CudaDeviceGuard(int device) {
        const CUcontext own = device < most_devices ? context(device).load() : nullptr;
        status_ = own ? status_of(driver().push(own)) : cudaErrorInvalidDevice;
        if (is_ok(status_)) forget(cudaThreadExchangeStreamCaptureMode(&mode_));
    }
    ~CudaDeviceGuard() {
        if (!is_ok(status_)) return;
        forget(cudaThreadExchangeStreamCaptureMode(&mode_));
        CUcontext popped = nullptr;
        driver().pop(&popped);
    }
    CudaDeviceGuard(const CudaDeviceGuard &) = delete;
    CudaDeviceGuard &operator=(const CudaDeviceGuard &) = delete;

    Status status() const { return status_; }

private:
    Status status_ = success;
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};
using DeviceGuard = CudaDeviceGuard;

inline Status describe(int device, GpuTraits &traits, Uuid &uuid) {
    cudaDeviceProp properties;
    const Status status = cudaGetDeviceProperties(&properties, device);
    if (!is_ok(status)) return status;
    describe(properties, traits);
    traits.has_stream_waits = driver().await_value != nullptr;
    traits.can_capture = traits.has_stream_waits;
    traits.has_gpu_barrier = true;
    traits.threads = "cuda"; // cuda-EvtHandlr, cuda00001400006
    std::memcpy(uuid.data(), properties.uuid.bytes, uuid.size());
    return status;
}

inline Status create(Pool *pool, int device) { return create_pool(pool, device); }
inline Status allocate_in_order(void **memory, size_t bytes, Pool pool, Stream stream) {
    return cudaMallocFromPoolAsync(memory, bytes, pool, stream);
}
inline Status free_in_order(void *memory, Pool, Stream stream) {
    return cudaFreeAsync(memory, stream);
}
inline Status allocate_pinned(void **memory, size_t bytes) {
    return cudaHostAlloc(memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
}

inline Status find(const void *memory, GpuPlace &place) {
    cudaPointerAttributes found;
    const Status status = cudaPointerGetAttributes(&found, memory);
    if (!is_ok(status)) return status;
    place = {};
    const auto of_a_gpu = [&](GpuPlace::Kind kind) {
        place = {.kind = kind, .number = static_cast<uint32_t>(found.device)};
    };
    if (found.type == cudaMemoryTypeHost) place.kind = GpuPlace::Kind::pinned;
    if (found.type == cudaMemoryTypeDevice) of_a_gpu(GpuPlace::Kind::gpu);
    if (found.type == cudaMemoryTypeManaged) of_a_gpu(GpuPlace::Kind::managed);
    return status;
}
inline Status find_base(void *memory, void **base) {
    if (!driver().find_range) return cudaErrorNotSupported;
    CUdeviceptr start = 0;
    size_t bytes = 0;
    const CUresult result =
        driver().find_range(&start, &bytes, reinterpret_cast<CUdeviceptr>(memory));
    *base = reinterpret_cast<void *>(start);
    return status_of(result);
}

inline Status tie_to_graph(Stream stream, void (*end)(void *), void *context_of_it) {
    cudaStreamCaptureStatus answer = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    cudaGraph_t graph{};
    cudaUserObject_t object{};
    Status status = cudaStreamGetCaptureInfo(stream, &answer, &id, &graph);
    if (is_ok(status))
        status =
            cudaUserObjectCreate(&object, context_of_it, end, 1, cudaUserObjectNoDestructorSync);
    if (!is_ok(status)) {
        end(context_of_it);
        return status;
    }
    status = cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove);
    if (!is_ok(status)) forget(cudaUserObjectRelease(object));
    return status;
}
inline Status call_host(Stream stream, void (*function)(void *), void *context_of_it) {
    return cudaLaunchHostFunc(stream, function, context_of_it);
}

inline Status await_value(Stream stream, const uint32_t *at, uint32_t value) {
    if (!driver().await_value) return cudaErrorNotSupported;
    return status_of(driver().await_value(stream, reinterpret_cast<CUdeviceptr>(at), value,
                                          CU_STREAM_WAIT_VALUE_GEQ));
}

} // namespace qccl::runtime
