/* The emulated GPU: eight GPUs that the CPU plays, for programs that use QCCL as they would on a
 * machine with GPUs, and for their tests. The calls are those of the CUDA runtime by other names;
 * what is not said here is as there. Link libqccl_emulated.so; QCCL finds the same GPUs by itself.
 *
 *     void *memory;
 *     qcclEmulatedStream_t stream;
 *     qcclEmulatedMalloc(&memory, bytes);
 *     qcclEmulatedStreamCreate(&stream);
 *     qcclEmulatedMemcpyAsync(memory, values, bytes, stream);
 *     qcclEmulatedStreamSynchronize(stream);
 *
 * Even GPUs have warps of 32 lanes, odd ones of 64. They show whether results and their order are
 * right: what is asynchronous on a GPU is so here, what it leaves undefined is an error where the
 * emulation sees it. They say nothing about speed, and memory of a GPU is not hidden from the host.
 *
 * Every function returns a result. Work that fails on its way through a stream makes the stream
 * fail for ever: whatever is asked of it later returns the same result. Handles and sizes are
 * written only on success. After fork the child gets qcclEmulatedErrorInitialization of everything,
 * unless it begins again.
 */
#ifndef QCCL_EMULATED_H
#define QCCL_EMULATED_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define QCCL_EMULATED_API __attribute__((visibility("default")))
#else
#define QCCL_EMULATED_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t qcclEmulatedResult_t;
enum {
    qcclEmulatedSuccess = 0,
    qcclEmulatedErrorInvalidValue = 1,
    qcclEmulatedErrorMemoryAllocation = 2,
    qcclEmulatedErrorInitialization = 3,
    qcclEmulatedErrorInvalidDevice = 101,
    qcclEmulatedErrorPeerAccessUnsupported = 217,
    qcclEmulatedErrorInvalidHandle = 400,
    qcclEmulatedErrorNotReady = 600,
    qcclEmulatedErrorIllegalAddress = 700,
    qcclEmulatedErrorPeerAccessAlreadyEnabled = 704,
    qcclEmulatedErrorHostMemoryAlreadyRegistered = 712,
    qcclEmulatedErrorHostMemoryNotRegistered = 713,
    qcclEmulatedErrorLaunchFailure = 719, /* a kernel did what a GPU leaves undefined */
    qcclEmulatedErrorGuardBytes = 720,    /* something has written beside memory of the GPU */
    qcclEmulatedErrorNotPermitted = 800,  /* of the function that a stream has called */
    qcclEmulatedErrorStreamCaptureUnsupported = 900,
    qcclEmulatedErrorStreamCaptureInvalidated = 901,
    qcclEmulatedErrorStreamCaptureUnmatched = 903,
    qcclEmulatedErrorStreamCaptureUnjoined = 904,
    qcclEmulatedErrorStreamCaptureIsolation = 905,
    qcclEmulatedErrorStreamCaptureImplicit = 906,
    qcclEmulatedErrorCapturedEvent = 907,
    qcclEmulatedErrorStreamCaptureWrongThread = 908
};
QCCL_EMULATED_API const char *qcclEmulatedGetErrorString(qcclEmulatedResult_t result);
/* What the last call of this thread that failed has to say; never null. */
QCCL_EMULATED_API const char *qcclEmulatedGetErrorSentence(void);

typedef struct qcclEmulatedStream *qcclEmulatedStream_t;
typedef struct qcclEmulatedEvent *qcclEmulatedEvent_t;
typedef struct qcclEmulatedGraph *qcclEmulatedGraph_t;
typedef struct qcclEmulatedGraphExec *qcclEmulatedGraphExec_t;

/* ---- GPUs ------------------------------------------------------------------------------------
 * Each thread has a GPU of its own choice, 0 at first, that calls without a stream are for. */

QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedGetDeviceCount(int *count);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedSetDevice(int device);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedGetDevice(int *device);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedDeviceSynchronize(void);

typedef struct {
    char name[64];
    unsigned char uuid[16];
    int warpSize;
    int multiProcessorCount;
    size_t totalGlobalMem;
    int pciDomainID, pciBusID, pciDeviceID; /* -1: the GPU is in no slot */
} qcclEmulatedDeviceProp_t;
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedGetDeviceProperties(qcclEmulatedDeviceProp_t *properties, int device);

QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedDeviceCanAccessPeer(int *can, int device,
                                                                       int peer);
/* Kernels on the thread's GPU may touch memory of `peer` from now on. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedDeviceEnablePeerAccess(int peer);

/* ---- Memory ----------------------------------------------------------------------------------
 * Of a GPU, at multiples of 256 bytes and not zeroed; of the host, for the GPU. Guard bytes lie
 * around the GPU's: Free and the synchronizing calls look at them. Free waits for its GPU. */

QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedMalloc(void **memory, size_t bytes);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedFree(void *memory);
/* In the order of the stream; this memory cannot be opened by other processes. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedMallocAsync(void **memory, size_t bytes,
                                                               qcclEmulatedStream_t stream);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedFreeAsync(void *memory,
                                                             qcclEmulatedStream_t stream);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedMallocHost(void **memory, size_t bytes);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedFreeHost(void *memory);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedHostRegister(void *memory, size_t bytes);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedHostUnregister(void *memory);

/* Between any two places; asynchronous also for memory of the host that is not pinned, which has to
 * stay as it is until the copy is done. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedMemcpy(void *to, const void *from, size_t bytes);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedMemcpyAsync(void *to, const void *from,
                                                               size_t bytes,
                                                               qcclEmulatedStream_t stream);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedMemsetAsync(void *memory, int value,
                                                               size_t bytes,
                                                               qcclEmulatedStream_t stream);

typedef int32_t qcclEmulatedMemoryType_t;
enum {
    qcclEmulatedMemoryTypeUnregistered = 0,
    qcclEmulatedMemoryTypeHost = 1,
    qcclEmulatedMemoryTypeDevice = 2
};
typedef struct {
    qcclEmulatedMemoryType_t type;
    int device;   /* -1: unregistered */
    void *base;   /* of all that was given in one piece */
    size_t bytes;
} qcclEmulatedPointerAttributes_t;
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedPointerGetAttributes(qcclEmulatedPointerAttributes_t *attributes, const void *memory);

/* Memory of a GPU for another process on this machine, which may not outlive its owner's Free. A
 * process cannot open its own. The handle is that of the whole piece that `memory` lies in. */
typedef struct {
    unsigned char bytes[64];
} qcclEmulatedIpcMemHandle_t;
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedIpcGetMemHandle(qcclEmulatedIpcMemHandle_t *handle, void *memory);
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedIpcOpenMemHandle(void **memory, const qcclEmulatedIpcMemHandle_t *handle);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedIpcCloseMemHandle(void *memory);

/* ---- Streams and events ----------------------------------------------------------------------
 * Null is the default stream of the thread's GPU: it waits for all streams there that are not
 * non-blocking, and they for it. */

#define qcclEmulatedStreamPerThread ((qcclEmulatedStream_t)2)

QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamCreate(qcclEmulatedStream_t *stream);
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedStreamCreateNonBlocking(qcclEmulatedStream_t *stream);
/* Priorities are 0, which streams have whose creation names none, to -5, the greatest; what lies
 * beyond is brought back. They make no stream faster here. `flags`: one of the two below. */
enum { qcclEmulatedStreamDefault = 0, qcclEmulatedStreamNonBlocking = 1 };
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedStreamCreateWithPriority(qcclEmulatedStream_t *stream, unsigned flags, int priority);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamGetPriority(qcclEmulatedStream_t stream,
                                                                     int *priority);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedDeviceGetStreamPriorityRange(int *least,
                                                                                int *greatest);
/* What is in it is still done. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamDestroy(qcclEmulatedStream_t stream);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamSynchronize(qcclEmulatedStream_t stream);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamQuery(qcclEmulatedStream_t stream);

QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedEventCreate(qcclEmulatedEvent_t *event);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedEventDestroy(qcclEmulatedEvent_t event);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedEventRecord(qcclEmulatedEvent_t event,
                                                               qcclEmulatedStream_t stream);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedEventQuery(qcclEmulatedEvent_t event);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedEventSynchronize(qcclEmulatedEvent_t event);
/* A stream that waits for one that fails fails with it. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamWaitEvent(qcclEmulatedStream_t stream,
                                                                   qcclEmulatedEvent_t event);

/* Runs `kernel` as every thread of every block, beside nothing else in its stream. `argument` is
 * copied; blocks have as many threads as the GPU has lanes, times a whole number. */
typedef void (*qcclEmulatedKernel_t)(const void *argument, unsigned block, unsigned thread);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedLaunchKernel(qcclEmulatedKernel_t kernel,
                                                                unsigned blocks, unsigned threads,
                                                                const void *argument, size_t bytes,
                                                                qcclEmulatedStream_t stream);
/* For kernels: the block's threads wait for each other, all of them or the launch fails. */
QCCL_EMULATED_API void qcclEmulatedSyncThreads(void);
/* The function must not call the GPU. It is not called where the stream has failed. */
typedef void (*qcclEmulatedHostFn_t)(void *context);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedLaunchHostFunc(qcclEmulatedStream_t stream,
                                                                  qcclEmulatedHostFn_t function,
                                                                  void *context);
/* The stream goes on when (int32_t)(*at - value) >= 0. `at` is memory that the GPU reaches. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamWaitValue32(qcclEmulatedStream_t stream,
                                                                     const uint32_t *at,
                                                                     uint32_t value);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamWriteValue32(qcclEmulatedStream_t stream,
                                                                      uint32_t *at,
                                                                      uint32_t value);

/* ---- Graphs ----------------------------------------------------------------------------------
 * A stream that captures, and those that wait for its events, collect what they are asked for. What
 * cannot be captured spoils the capture, as does what might wait for the GPU, from threads that
 * have not said that they know better. */

typedef int32_t qcclEmulatedCaptureMode_t;
enum {
    qcclEmulatedCaptureModeGlobal = 0,
    qcclEmulatedCaptureModeThreadLocal = 1,
    qcclEmulatedCaptureModeRelaxed = 2
};
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedStreamBeginCapture(qcclEmulatedStream_t stream, qcclEmulatedCaptureMode_t mode);
/* By the thread that began it, unless that was relaxed. */
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedStreamEndCapture(qcclEmulatedStream_t stream, qcclEmulatedGraph_t *graph);
/* Which capture the stream is in: each has a number of its own in the process. 0: none. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamGetCapture(qcclEmulatedStream_t stream,
                                                                    uint64_t *capture);
/* Has `destroy` called, on any thread, once neither the graph that the stream's capture makes is
 * left, nor any that was instantiated of it, nor any launch. It must not call the GPU, whose calls
 * wait for it. */
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedCaptureUserObject(qcclEmulatedStream_t stream, qcclEmulatedHostFn_t destroy,
                              void *object);
/* Of the calling thread; leaves what it was in `mode`. */
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedThreadExchangeCaptureMode(qcclEmulatedCaptureMode_t *mode);

QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedGraphInstantiate(qcclEmulatedGraphExec_t *exec, qcclEmulatedGraph_t graph);
/* One launch after the other, on whatever streams; its branches run beside each other. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedGraphLaunch(qcclEmulatedGraphExec_t exec,
                                                               qcclEmulatedStream_t stream);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedGraphDestroy(qcclEmulatedGraph_t graph);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedGraphExecDestroy(qcclEmulatedGraphExec_t exec);

/* ---- For tests -------------------------------------------------------------------------------
 * These never fail, whatever they made others do. */

/* The n-th call from now on, counted from 1, does nothing and returns `result`; 0: none does. Calls
 * count that ask the GPU for something; those that give something back, choose a GPU or a thread's
 * mode, or tell of results or a stream's priority do not. */
QCCL_EMULATED_API void qcclEmulatedFailCall(uint64_t n, qcclEmulatedResult_t result);
/* The n-th piece of work that streams come to fails on its way. */
QCCL_EMULATED_API void qcclEmulatedFailWork(uint64_t n, qcclEmulatedResult_t result);
/* Of the calls that count, by all threads, from the beginning. */
QCCL_EMULATED_API uint64_t qcclEmulatedCountCalls(void);
/* Pieces of memory, registrations, opened handles, streams, events and graphs that live. */
QCCL_EMULATED_API size_t qcclEmulatedCountHeld(void);
/* Of each GPU's memory; what is held already stays. */
QCCL_EMULATED_API void qcclEmulatedLimitMemory(size_t bytes);
/* Whether GPUs are without access to each other's memory, also by handles. */
QCCL_EMULATED_API void qcclEmulatedForbidPeers(int are_forbidden);
/* In which slot of the machine's PCI the GPU is from now on; at first, and with -1, in none. */
QCCL_EMULATED_API void qcclEmulatedPlugIn(int device, int domain, int bus, int slot);
/* In a forked child, or when all is done: a runtime in which nothing has been yet. */
QCCL_EMULATED_API void qcclEmulatedBeginAgain(void);

#ifdef __cplusplus
}
#endif

#endif
