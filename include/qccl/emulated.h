/* The emulated GPU: eight GPUs that the CPU emulates. A program uses it as it would use QCCL on a
 * machine with GPUs; tests use it, too. The calls are those of the CUDA runtime under other names,
 * and behave like those where this header says nothing else. A program links libqccl_emulated.so;
 * QCCL finds the same GPUs by itself.
 *
 *     void *memory;
 *     qcclEmulatedStream_t stream;
 *     qcclEmulatedMalloc(&memory, bytes);
 *     qcclEmulatedStreamCreate(&stream);
 *     qcclEmulatedMemcpyAsync(memory, values, bytes, stream);
 *     qcclEmulatedStreamSynchronize(stream);
 *
 * GPUs with even numbers have warps of 32 lanes, GPUs with odd numbers warps of 64. The emulation
 * shows whether results and their order are right: what is asynchronous on a GPU is asynchronous
 * here, and what a GPU leaves undefined is an error here, where the emulation detects it. It says
 * nothing about speed, and it does not hide GPU memory from the host.
 *
 * Every function returns a result; the groups of results that many functions share stand below the
 * enumeration. A function writes its outputs only on success. If work in a stream fails, the stream
 * has failed for ever: every later call that uses the stream returns the same result. After a fork
 * the child gets qcclEmulatedErrorInitialization from every call, unless it calls
 * qcclEmulatedBeginAgain. Any thread may call every function. Only the functions whose comments say
 * so wait for a GPU.
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
    qcclEmulatedErrorNotPermitted = 800,  /* a function that a stream has called calls the GPU */
    qcclEmulatedErrorStreamCaptureUnsupported = 900,
    qcclEmulatedErrorStreamCaptureInvalidated = 901,
    qcclEmulatedErrorStreamCaptureUnmatched = 903,
    qcclEmulatedErrorStreamCaptureUnjoined = 904,
    qcclEmulatedErrorStreamCaptureIsolation = 905,
    qcclEmulatedErrorStreamCaptureImplicit = 906,
    qcclEmulatedErrorCapturedEvent = 907,
    qcclEmulatedErrorStreamCaptureWrongThread = 908
};
/* Groups of results, to which the comments of the functions refer. The comments write ErrorX for
 * qcclEmulatedErrorX.
 *
 * Common errors. Every function that returns a result returns them.
 *   ErrorInitialization            This process was forked from one that used the GPUs. The caller
 *                                  calls qcclEmulatedBeginAgain first.
 *   ErrorNotPermitted              A function that a stream has called (qcclEmulatedLaunchHostFunc)
 *                                  calls the GPU.
 *   ErrorMemoryAllocation          The system refuses memory, a thread or a descriptor.
 *   the result that qcclEmulatedFailCall asked for
 *
 * Wait errors. Functions that may wait for a GPU return them.
 *   ErrorStreamCaptureUnsupported  A capture is under way during which this thread must not wait.
 *                                  The capture is invalid from then on.
 *
 * Stream errors. Functions that put work into a stream return them.
 *   ErrorInvalidHandle             The handle is no stream.
 *   ErrorStreamCaptureInvalidated  The stream captures, and its capture is invalid.
 *   ErrorStreamCaptureImplicit     The stream is the default stream, and a stream that it waits for
 *                                  captures. That capture is invalid from then on.
 *   the result by which the stream has failed (ErrorLaunchFailure, ErrorIllegalAddress, ...). The
 *     caller creates another stream. */

/* Returns a text for a result; never NULL. */
QCCL_EMULATED_API const char *qcclEmulatedGetErrorString(qcclEmulatedResult_t result);
/* Returns a sentence about the latest call of this thread that failed; never NULL, "" if none has.
 * It is valid until the thread's next call that fails. */
QCCL_EMULATED_API const char *qcclEmulatedGetErrorSentence(void);

typedef struct qcclEmulatedStream *qcclEmulatedStream_t;
typedef struct qcclEmulatedEvent *qcclEmulatedEvent_t;
typedef struct qcclEmulatedGraph *qcclEmulatedGraph_t;
typedef struct qcclEmulatedGraphExec *qcclEmulatedGraphExec_t;

/* ---- GPUs ------------------------------------------------------------------------------------
 * Each thread has a current GPU, at first number 0. Calls without a stream use that GPU. */

/* Gives the number of GPUs, 8. Returns common errors, or ErrorInvalidValue if count is NULL. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedGetDeviceCount(int *count);
/* Set and give the thread's current GPU. Return common errors, ErrorInvalidDevice if there is no
 * such GPU, or ErrorInvalidValue for a NULL pointer. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedSetDevice(int device);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedGetDevice(int *device);
/* Waits until all streams of the thread's GPU are idle, and checks the guard bytes of its memory.
 * Returns common errors, wait errors, the result of work that failed, or ErrorGuardBytes. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedDeviceSynchronize(void);

typedef struct {
    char name[64];
    unsigned char uuid[16];
    int warpSize;
    int multiProcessorCount;
    size_t totalGlobalMem; /* bytes */
    int pciDomainID, pciBusID, pciDeviceID; /* -1: the GPU is in no slot */
} qcclEmulatedDeviceProp_t;
/* Describes a GPU. Returns common errors, ErrorInvalidValue if properties is NULL, or
 * ErrorInvalidDevice. */
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedGetDeviceProperties(qcclEmulatedDeviceProp_t *properties, int device);

/* Sets *can to 1 if kernels on `device` can be given access to memory of `peer`, else to 0. Returns
 * common errors, ErrorInvalidValue if can is NULL, or ErrorInvalidDevice. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedDeviceCanAccessPeer(int *can, int device,
                                                                       int peer);
/* From now on kernels on the thread's GPU may access memory of `peer`. Returns common errors;
 * ErrorInvalidDevice, also for the thread's own GPU; ErrorPeerAccessUnsupported after
 * qcclEmulatedForbidPeers; or ErrorPeerAccessAlreadyEnabled, which changes nothing. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedDeviceEnablePeerAccess(int peer);

/* ---- Memory ----------------------------------------------------------------------------------
 * Memory of a GPU begins at a multiple of 256 bytes and is not zeroed. Guard bytes lie around it:
 * the functions that free it and the synchronizing functions check them. Memory of the host that
 * qcclEmulatedMallocHost gives or that is registered can be reached by the GPUs. Functions that
 * free or unregister memory outside a stream wait for its GPU. */

/* Allocates `bytes` (1 or more) bytes on the thread's GPU. The caller frees them. Returns common
 * errors, wait errors, ErrorInvalidValue if memory is NULL or bytes is 0, or ErrorMemoryAllocation,
 * also beyond the limit of qcclEmulatedLimitMemory. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedMalloc(void **memory, size_t bytes);
/* Waits for the memory's GPU and frees the memory; NULL does nothing. Returns common errors, wait
 * errors, ErrorInvalidValue if no allocation begins there, or ErrorGuardBytes if something has
 * written beside the memory; then the memory has been freed. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedFree(void *memory);
/* As qcclEmulatedMalloc and qcclEmulatedFree, but in the order of the stream, without waiting.
 * Other processes cannot open this memory. qcclEmulatedFreeAsync does not take NULL. If something
 * has written beside the memory, the stream fails with ErrorGuardBytes. A stream that has failed
 * frees the memory at once. Return common errors, stream errors, ErrorInvalidValue,
 * ErrorMemoryAllocation, or ErrorStreamCaptureUnsupported if the stream captures, which invalidates
 * the capture. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedMallocAsync(void **memory, size_t bytes,
                                                               qcclEmulatedStream_t stream);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedFreeAsync(void *memory,
                                                             qcclEmulatedStream_t stream);
/* As qcclEmulatedMalloc and qcclEmulatedFree, for memory of the host. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedMallocHost(void **memory, size_t bytes);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedFreeHost(void *memory);
/* Make memory of the host, which stays the caller's, reachable for the GPUs, and end that. Return
 * common errors, wait errors, ErrorInvalidValue if memory is NULL or bytes is 0,
 * ErrorHostMemoryAlreadyRegistered if part of the memory is known to the GPUs, or
 * ErrorHostMemoryNotRegistered. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedHostRegister(void *memory, size_t bytes);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedHostUnregister(void *memory);

/* Copy memory between any two places, of the host or of GPUs. The first uses the default stream and
 * waits until the copy is done; the second only enqueues it, also for memory of the host that is
 * not pinned, which must not change until the copy is done. The third fills memory that the
 * stream's GPU reaches with `value`. Return common errors, stream errors, ErrorInvalidValue for a
 * NULL pointer or bytes beyond the memory, and qcclEmulatedMemcpy also wait errors, the result of
 * work that failed, and ErrorGuardBytes. */
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
    void *base;   /* of the whole allocation or registration */
    size_t bytes; /* of the same */
} qcclEmulatedPointerAttributes_t;
/* Tells whose memory a pointer points to. Returns common errors, or ErrorInvalidValue if attributes
 * is NULL. */
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedPointerGetAttributes(qcclEmulatedPointerAttributes_t *attributes, const void *memory);

/* Share memory of a GPU with another process of this machine. The other process closes the memory
 * before its owner frees it. A process cannot open its own memory. The handle is that of the whole
 * allocation of qcclEmulatedMalloc that `memory` lies in; opening gives the allocation's first
 * byte, and the same address each time. Return common errors, wait errors, ErrorInvalidValue for a
 * NULL pointer, for memory that cannot be shared, and for a handle that qcclEmulatedIpcGetMemHandle
 * did not make, that is of this process, or whose memory is gone; ErrorMemoryAllocation; or
 * ErrorPeerAccessUnsupported after qcclEmulatedForbidPeers, for memory of another GPU than the
 * thread's. */
typedef struct {
    unsigned char bytes[64];
} qcclEmulatedIpcMemHandle_t;
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedIpcGetMemHandle(qcclEmulatedIpcMemHandle_t *handle, void *memory);
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedIpcOpenMemHandle(void **memory, const qcclEmulatedIpcMemHandle_t *handle);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedIpcCloseMemHandle(void *memory);

/* ---- Streams and events ----------------------------------------------------------------------
 * NULL is the default stream of the thread's GPU. It waits for all streams of that GPU that are not
 * non-blocking, and they wait for it. */

/* The calling thread's own stream on its current GPU. */
#define qcclEmulatedStreamPerThread ((qcclEmulatedStream_t)2)

/* Create a stream on the thread's GPU. The caller destroys it. `flags` is one of the two values
 * below. Priorities go from 0, the default, to -5, the greatest; numbers beyond are clamped.
 * Priorities make no stream faster here. Return common errors, or ErrorInvalidValue for a NULL
 * pointer or other flags. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamCreate(qcclEmulatedStream_t *stream);
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedStreamCreateNonBlocking(qcclEmulatedStream_t *stream);
enum { qcclEmulatedStreamDefault = 0, qcclEmulatedStreamNonBlocking = 1 };
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedStreamCreateWithPriority(qcclEmulatedStream_t *stream, unsigned flags, int priority);
/* Give a stream's priority, and the range of priorities. Return common errors, ErrorInvalidHandle
 * if the handle is no stream, or ErrorInvalidValue for a NULL pointer. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamGetPriority(qcclEmulatedStream_t stream,
                                                                     int *priority);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedDeviceGetStreamPriorityRange(int *least,
                                                                                int *greatest);
/* Destroys a stream. Its work is still done; a capture that it is in ends without a graph. Returns
 * common errors, or ErrorInvalidHandle, also for NULL and qcclEmulatedStreamPerThread. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamDestroy(qcclEmulatedStream_t stream);
/* Wait until the stream is idle, and ask whether it is. Return common errors, wait errors, stream
 * errors, ErrorStreamCaptureUnsupported if the stream captures, which invalidates the capture; the
 * first also ErrorGuardBytes, the second ErrorNotReady while work is left. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamSynchronize(qcclEmulatedStream_t stream);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamQuery(qcclEmulatedStream_t stream);

/* Create an event on the thread's GPU, and destroy one. Return common errors, ErrorInvalidValue if
 * event is NULL, or ErrorInvalidHandle if the handle is no event. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedEventCreate(qcclEmulatedEvent_t *event);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedEventDestroy(qcclEmulatedEvent_t event);
/* Records the event behind the work that the stream has been given so far. Returns common errors,
 * stream errors, or ErrorInvalidHandle if the handle is no event or the event is of another GPU
 * than the stream. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedEventRecord(qcclEmulatedEvent_t event,
                                                               qcclEmulatedStream_t stream);
/* Ask whether the work before the event is done, and wait until it is. An event that has not been
 * recorded is done. Return common errors, wait errors, ErrorInvalidHandle, ErrorCapturedEvent if
 * the event was recorded in a capture, or the result of work that failed; the first also
 * ErrorNotReady, the second ErrorGuardBytes. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedEventQuery(qcclEmulatedEvent_t event);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedEventSynchronize(qcclEmulatedEvent_t event);
/* Makes the stream wait for the event. A stream that waits for a stream that fails fails with it. A
 * stream that waits for an event of a capture joins the capture. Returns common errors, stream
 * errors, ErrorInvalidHandle if the handle is no event, ErrorStreamCaptureIsolation if the stream
 * and the event are not in the same capture, or ErrorCapturedEvent if the event's capture has
 * ended. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamWaitEvent(qcclEmulatedStream_t stream,
                                                                   qcclEmulatedEvent_t event);

/* Runs `kernel` once for each thread of each block, after the stream's earlier work and before its
 * later work. The call copies the `bytes` bytes at `argument`, which may be NULL if bytes is 0. The
 * number of threads of a block is a multiple of the GPU's lanes. Returns common errors, stream
 * errors, ErrorInvalidHandle if the stream is of another GPU than the thread's, or
 * ErrorInvalidValue for a NULL pointer, no blocks, or a wrong number of threads. If the kernel does
 * what a GPU leaves undefined, the stream fails with ErrorLaunchFailure. */
typedef void (*qcclEmulatedKernel_t)(const void *argument, unsigned block, unsigned thread);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedLaunchKernel(qcclEmulatedKernel_t kernel,
                                                                unsigned blocks, unsigned threads,
                                                                const void *argument, size_t bytes,
                                                                qcclEmulatedStream_t stream);
/* For kernels: the threads of the block wait for each other. If not all of them call it, the launch
 * fails. */
QCCL_EMULATED_API void qcclEmulatedSyncThreads(void);
/* Makes the stream call `function`, in its order, on a thread of the emulation. The function must
 * not call the GPU (ErrorNotPermitted). It is not called if the stream has failed. Returns common
 * errors, stream errors, or ErrorInvalidValue if function is NULL. */
typedef void (*qcclEmulatedHostFn_t)(void *context);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedLaunchHostFunc(qcclEmulatedStream_t stream,
                                                                  qcclEmulatedHostFn_t function,
                                                                  void *context);
/* Make the stream wait until (int32_t)(*at - value) >= 0, and make it write `value`. `at` is memory
 * that the stream's GPU reaches. Return common errors, stream errors, or ErrorInvalidValue for
 * other memory. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamWaitValue32(qcclEmulatedStream_t stream,
                                                                     const uint32_t *at,
                                                                     uint32_t value);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamWriteValue32(qcclEmulatedStream_t stream,
                                                                      uint32_t *at,
                                                                      uint32_t value);

/* ---- Graphs ----------------------------------------------------------------------------------
 * A stream that captures, and the streams that wait for its events, record their work instead of
 * doing it. Work that cannot be captured invalidates the capture. So does a call that might wait
 * for a GPU, on threads that the mode of the capture and the thread's own mode do not exempt: on
 * the thread that began the capture, and, if both modes are global, on any thread. A relaxed mode
 * of either exempts the thread. */

typedef int32_t qcclEmulatedCaptureMode_t;
enum {
    qcclEmulatedCaptureModeGlobal = 0,
    qcclEmulatedCaptureModeThreadLocal = 1,
    qcclEmulatedCaptureModeRelaxed = 2
};
/* Begins a capture. Returns common errors, ErrorInvalidHandle, ErrorStreamCaptureUnsupported for
 * the default stream, ErrorInvalidValue if the stream captures already or there is no such mode, or
 * the result by which the stream has failed. */
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedStreamBeginCapture(qcclEmulatedStream_t stream, qcclEmulatedCaptureMode_t mode);
/* Ends the capture and gives its graph, which the caller destroys. The thread that began the
 * capture calls it, unless the capture's mode is relaxed. Returns common errors,
 * ErrorInvalidHandle, or ErrorInvalidValue if graph is NULL. ErrorStreamCaptureUnmatched (the
 * stream did not begin a capture) and ErrorStreamCaptureWrongThread leave the capture as it is.
 * After ErrorStreamCaptureInvalidated (it had become invalid) and ErrorStreamCaptureUnjoined (a
 * stream of the capture did not come back to the first one) the capture has ended without a
 * graph. */
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedStreamEndCapture(qcclEmulatedStream_t stream, qcclEmulatedGraph_t *graph);
/* Gives the number of the capture that the stream is in, unique in the process; 0: none. Returns
 * common errors, ErrorInvalidHandle, ErrorInvalidValue if capture is NULL, or
 * ErrorStreamCaptureImplicit for the default stream while a stream that it waits for captures. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedStreamGetCapture(qcclEmulatedStream_t stream,
                                                                    uint64_t *capture);
/* Calls destroy(object) when the graph that the stream's capture makes, all graphs that were
 * instantiated from it, and all their launches are gone. The call may come on any thread. It must
 * not call the GPU, because calls to the GPU wait for it. Returns common errors,
 * ErrorInvalidHandle, ErrorInvalidValue if destroy is NULL or the stream does not capture, or
 * ErrorStreamCaptureInvalidated. */
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedCaptureUserObject(qcclEmulatedStream_t stream, qcclEmulatedHostFn_t destroy,
                              void *object);
/* Sets the mode of the calling thread, and leaves its previous mode in `mode`. A thread's mode is
 * global at first. Returns common errors, or ErrorInvalidValue for NULL or if there is no such
 * mode. */
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedThreadExchangeCaptureMode(qcclEmulatedCaptureMode_t *mode);

/* Makes a graph that can be launched. The caller destroys both. Returns common errors, or
 * ErrorInvalidValue if exec is NULL or the handle is no graph. */
QCCL_EMULATED_API qcclEmulatedResult_t
qcclEmulatedGraphInstantiate(qcclEmulatedGraphExec_t *exec, qcclEmulatedGraph_t graph);
/* Puts the graph's work into the stream. The launches of one `exec` run one after the other, in
 * whatever streams; the branches of one launch run in parallel. Returns common errors, stream
 * errors, ErrorInvalidHandle if `exec` is no such graph, or ErrorStreamCaptureUnsupported if the
 * stream captures, which invalidates the capture. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedGraphLaunch(qcclEmulatedGraphExec_t exec,
                                                               qcclEmulatedStream_t stream);
/* Destroy a graph; launches that are under way are still done. Return common errors, or
 * ErrorInvalidValue if the handle is no graph. */
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedGraphDestroy(qcclEmulatedGraph_t graph);
QCCL_EMULATED_API qcclEmulatedResult_t qcclEmulatedGraphExecDestroy(qcclEmulatedGraphExec_t exec);

/* ---- For tests -------------------------------------------------------------------------------
 * These functions never fail themselves. */

/* The n-th call from now on, counted from 1, does nothing and returns `result`; 0: no call fails.
 * Only calls count that ask the GPU for something. Calls that give something back, choose a GPU or
 * a thread's mode, or tell of results or of a stream's priority do not count. */
QCCL_EMULATED_API void qcclEmulatedFailCall(uint64_t n, qcclEmulatedResult_t result);
/* The n-th piece of work that streams come to from now on, counted from 1, fails with `result`. */
QCCL_EMULATED_API void qcclEmulatedFailWork(uint64_t n, qcclEmulatedResult_t result);
/* Returns how many calls that count all threads have made since the beginning. */
QCCL_EMULATED_API uint64_t qcclEmulatedCountCalls(void);
/* Returns how many pieces of memory, registrations, opened handles, streams, events and graphs
 * live. */
QCCL_EMULATED_API size_t qcclEmulatedCountHeld(void);
/* Limits the memory of each GPU to `bytes`. Memory that has been allocated stays. */
QCCL_EMULATED_API void qcclEmulatedLimitMemory(size_t bytes);
/* 1: GPUs get no access to each other's memory, also by handles. 0: they get it again. */
QCCL_EMULATED_API void qcclEmulatedForbidPeers(int are_forbidden);
/* Puts the GPU into a PCI slot of the machine. At first, and with -1, it is in none. */
QCCL_EMULATED_API void qcclEmulatedPlugIn(int device, int domain, int bus, int slot);
/* Begins with a new runtime that holds nothing: in a forked child, or when all work is done. */
QCCL_EMULATED_API void qcclEmulatedBeginAgain(void);

#ifdef __cplusplus
}
#endif

#endif
