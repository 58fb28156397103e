// The emulated runtime's C API for GPUs and results, and the calls that only tests use. Any thread
// may call. Only qcclEmulatedDeviceSynchronize waits for a GPU.
#include "kernels/emulated_runtime/runtime.hpp"

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
