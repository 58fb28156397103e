// AMD's runtime, of ROCm 5.2 or newer, under the names that module.cu uses for every vendor's
// runtime. This runtime has no stream waits: a stream that waits for a host word would hold a
// compute unit.
#pragma once

#include <cstring>
#include <memory>

#include <hip/hip_runtime.h>

#define QCCL_RUNTIME(name) hip##name
#include "kernels/runtime/runtime_alike.hpp"

namespace qccl::runtime {

inline constexpr const char *vendor = "hip";

inline bool is_misuse(Status status) { return status == hipErrorInvalidHandle; }
inline const char *text(Status status) { return hipGetErrorString(status); }

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
inline Status describe(int device, GpuTraits &traits, Uuid &uuid) {
    hipDeviceProp_t properties;
    if (const Status status = hipGetDeviceProperties(&properties, device); !is_ok(status))
        return status;
    describe(properties, traits);
    traits.has_gpu_barrier = false; // not proven where memory may be coarse-grained
    hipUUID found;
    const Status status = hipDeviceGetUuid(&found, device);
    std::memcpy(uuid.data(), found.bytes, uuid.size());
    return status;
}

// The pool stays null if the GPU has no pools: freeing memory then waits for all work of the GPU.
inline Status create(Pool *pool, int device) {
    int has = 0;
    forget(hipDeviceGetAttribute(&has, hipDeviceAttributeMemoryPoolsSupported, device));
    return has != 0 ? create_pool(pool, device) : success;
}
inline Status allocate_in_order(void **memory, size_t bytes, Pool pool, Stream stream) {
    return pool ? hipMallocFromPoolAsync(memory, bytes, pool, stream) : hipMalloc(memory, bytes);
}
inline Status free_in_order(void *memory, Pool pool, Stream stream) {
    return pool ? hipFreeAsync(memory, stream) : hipFree(memory);
}
inline Status allocate_pinned(void **memory, size_t bytes) {
    return hipHostMalloc(memory, bytes, hipHostMallocPortable | hipHostMallocMapped);
}

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

inline Status tie_to_graph(Stream, void (*end)(void *), void *context) {
    end(context);
    return hipErrorNotSupported;
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

inline Status await_value(Stream, const uint32_t *, uint32_t) { return hipErrorNotSupported; }

} // namespace qccl::runtime
