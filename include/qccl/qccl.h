/* QCCL: collective communication with compression built in.
 *
 * This header is the whole C API, in reading order. A program includes it and links libqccl.
 *
 * A communicator joins `nranks` ranks. A rank is a process or a thread. Every rank calls the same
 * collectives in the same order. Each call moves encoded bytes, and all ranks end with identical
 * bytes, unless the call's codec says "owner=exact". Lossless is the default: a codec changes
 * values only if the call, the communicator or the environment names one. The first of these three
 * that names a codec decides.
 *
 *     qcclUniqueId id;                        // one rank makes it and brings it to all others
 *     qcclComm_t comm;
 *     qcclCommInitRank(&comm, nranks, &id, rank);
 *     qcclAllReduce(gradient, gradient, count, qcclFloat32, qcclSum, comm, NULL);
 *     qcclCommDestroy(comm);
 *
 * The comment of a function says what the function does, and then lists its arguments, its results
 * ("Returns") and the threads that may call it ("Threads"). Results that many functions share are
 * described once, in groups, below qcclResult_t. The rules that follow hold for every function
 * unless its comment says otherwise.
 *
 * Results
 * - A function returns qcclSuccess or a code that says what went wrong. qcclGetLastError returns a
 *   sentence that explains the code.
 * - An argument whose name ends in `_out` must not be NULL. The function writes it only on success.
 * - qcclInvalidArgument and qcclInvalidUsage are refusals. A refused call has no effect: it
 *   consumes no call number and leaves the communicator usable. The caller corrects the call and
 *   repeats it. The other ranks wait for the corrected call until their `timeout`, and it completes
 *   theirs. The creation of communicators differs: see "Creation errors" below qcclResult_t.
 * - A failed collective leaves its receive buffer undefined and its communicator failed. Every
 *   later collective on that communicator returns the same error. qcclCommShrink, qcclCommDestroy
 *   and qcclCommAbort still work.
 *
 * Threads
 * - One thread at a time may be inside a communicator. Different communicators are independent.
 * - "Threads: any" means that any thread may call the function at any time, also while another
 *   thread is inside the communicator, and from the idle and log functions of qcclConfig_t.
 *
 * Handles
 * - Handles (qcclComm_t, qcclColl_t, qcclCodec_t, qcclLayerCodecs_t, qcclState_t, streams of
 *   qcclStreamCreate, requests, registrations) are numbers, not addresses. A process gives each
 *   number once.
 * - A handle ends when it is destroyed, aborted or deregistered. From then on every call with it is
 *   refused with qcclInvalidUsage, for the life of the process. If a call races with the end, a
 *   call that comes too late is refused, and a call that came in time finishes first.
 *   qcclCommDestroy itself is refused while another thread is inside.
 * - If several threads end a handle at once, one of them ends it, and the others get
 *   qcclInvalidUsage.
 * - A value that never was a handle is refused with qcclInvalidArgument and is not dereferenced. On
 *   a communicator of a GPU, streams are the vendor's, and the vendor's runtime does dereference
 *   them.
 * - A forked child may use and destroy its parent's codecs. It is refused its parent's
 *   communicators, layer codecs, states, streams and requests with qcclInvalidUsage.
 */
#ifndef QCCL_H
#define QCCL_H

#include <stddef.h>
#include <stdint.h>

#include <qccl/version.h>

#if defined(__GNUC__)
#define QCCL_API __attribute__((visibility("default")))
#else
#define QCCL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Values ----------------------------------------------------------------------------------
 * A value that NCCL has, too, has NCCL's number; those of types, operations and results that only
 * QCCL has begin at 64. Numbers are never reused. The types are int32_t because the width of a C
 * enum is not part of an ABI. */

typedef int32_t qcclResult_t;
enum {
    qcclSuccess = 0,
    qcclUnhandledDeviceError = 1, /* a call to the device's runtime failed */
    qcclSystemError = 2,          /* a call to the operating system failed */
    qcclInternalError = 3,        /* a mistake in QCCL itself */
    qcclInvalidArgument = 4,      /* an argument is not valid; the communicator stays usable */
    qcclInvalidUsage = 5,         /* the call is not allowed here: a second thread, a forked child,
                                   * a handle that has ended, ... */
    qcclRemoteError = 6,          /* another rank failed */
    qcclInProgress = 7,           /* the work is still running */
    qcclTimeout = 8,              /* a live rank did not come in time */
    qcclMismatch = 64,            /* ranks disagree about a call */
    qcclPeerLost = 65,            /* a rank died or left, or cannot be reached */
    qcclRevoked = 66,             /* a rank called qcclCommRevoke or qcclCommAbort */
    qcclDamagedData = 67          /* encoded bytes that no encoder writes */
};

/* Groups of results. The comments of the functions refer to them by name.
 *
 * Handle errors. Every function that takes a handle returns them.
 *   qcclInvalidArgument       The handle is NULL (where the function does not allow NULL), or the
 *                             value never was a handle of this kind. The caller passes another one.
 *   qcclInvalidUsage          The handle has ended, or this process is a forked child and the
 *                             handle is its parent's. The caller makes a handle of its own. Or a
 *                             nonblocking communicator is not made yet (qcclConfig_t). A
 *                             communicator whose creation has failed gives the creation error.
 *
 * Entry errors. Functions that enter a communicator return them. They are the handle errors and:
 *   qcclInvalidUsage          Another thread is inside the communicator, another thread is ending
 *                             the communicator, a nonblocking call is inside, or the caller is the
 *                             communicator's own idle or log function. The call had no effect. The
 *                             caller repeats it when the other thread has left, and outside the
 *                             idle or log function.
 *
 * Resource errors. Every function may return them.
 *   qcclSystemError           The operating system refused memory, a thread, a file, a socket or
 *                             the like; the sentence says which. The caller frees resources or
 *                             raises the limit, and repeats the call. In a function that takes part
 *                             in a communicator's call the code is a failure, see below.
 *   qcclInternalError         A mistake in QCCL. The caller reports it with its sentence.
 *
 * Failures. A communicator fails on all ranks that can be reached, and stays failed. Every rank
 * keeps the code and the sentence of the first failure that it learns of, and its functions return
 * that code. The caller ends the communicator (qcclCommDestroy, qcclCommAbort), or makes another
 * one of the ranks that are left (qcclCommShrink) and ends the old one.
 *   qcclTimeout               A live rank did not come within `timeout`. The sentence names the
 *                             rank. A longer `timeout` helps if the rank is only slow.
 *   qcclMismatch              Ranks made different calls, so their data may differ. The sentence
 *                             names two ranks and what differs. The program has to be corrected.
 *   qcclPeerLost              A rank died, ended the communicator, or cannot be reached any more.
 *                             qcclCommShrink goes on without the rank.
 *   qcclRevoked               A rank called qcclCommRevoke, qcclCommAbort, or qcclCommShrink with
 *                             QCCL_SHRINK_ABORT.
 *   qcclRemoteError           Another rank failed, and its reason did not arrive.
 *   qcclDamagedData           A message holds bytes that no encoder writes, or its checksum is
 *                             wrong.
 *   qcclUnhandledDeviceError  A call to the device's runtime failed on one rank. The sentence
 *                             quotes the runtime.
 *   qcclSystemError           One rank could not get memory or another resource in the call.
 *   qcclInternalError         A mistake in QCCL. The caller reports it with its sentence.
 *   qcclInvalidUsage          The only thread of a process waits in a call of one of its
 *                             communicators (of qcclCommInitAll, or split or shrunk from these) for
 *                             a call that the same thread would have to make. The program gives
 *                             each rank a thread, or uses host streams.
 * As a rule qcclInvalidArgument and qcclInvalidUsage are refusals. If qcclCommGetAsyncError gives
 * the same code, the communicator has failed with it.
 *
 * Creation errors. Functions that make a communicator return them. There is no new communicator
 * then.
 *   qcclInvalidArgument       An argument, a field of the config, or a setting of this rank (a
 *                             QCCL_ variable, the plan file) is not valid, or this machine or this
 *                             build does not have the device. The sentence names it.
 *   qcclRemoteError           Another rank was refused or could not make its part. The sentence
 *                             says which rank and why.
 *   qcclMismatch              The ranks differ in their number of ranks, in the protocol of their
 *                             release, or in a setting that has to be equal on all ranks. The
 *                             sentence names the first difference.
 *   qcclTimeout               A rank did not come within `timeout`, or the process that serves the
 *                             rendezvous cannot be reached in time.
 *   qcclPeerLost              A rank, or the process that serves the rendezvous, died, left or
 *                             cannot be reached.
 *   qcclUnhandledDeviceError  The device's runtime failed.
 *   qcclDamagedData           A message of the rendezvous is damaged.
 *   qcclSystemError           As in the resource errors; also: no interface of this machine leads
 *                             to the rendezvous, or ranks are on several hosts and there is no
 *                             network.
 *   qcclInternalError         As in the resource errors.
 * A rank that is refused before it meets the others (for a NULL pointer, a damaged id, its config;
 * in qcclCommInitEnv also for a launcher's variable) may correct the call and repeat it. The others
 * wait for it until their `timeout`. Every other creation error ends the creation on all ranks: the
 * caller corrects what the sentence says, and all ranks begin again. */

typedef int32_t qcclDataType_t;
enum {
    qcclInt8 = 0,
    qcclUint8 = 1,
    qcclInt32 = 2,
    qcclUint32 = 3,
    qcclInt64 = 4,
    qcclUint64 = 5,
    qcclFloat16 = 6,
    qcclFloat32 = 7,
    qcclFloat64 = 8,
    qcclBfloat16 = 9,
    qcclFloat8e4m3 = 10, /* OCP, on every device */
    qcclFloat8e5m2 = 11, /* OCP, on every device */
    qcclInt16 = 64,
    qcclUint16 = 65,
    qcclComplex64 = 66,  /* real and imaginary part in fp32: C's float complex */
    qcclComplex128 = 67, /* in fp64: C's double complex */
    qcclBool = 68,       /* one byte; any byte but zero is true */
    /* A value, and an index of type int32_t, in a struct as C lays it out. */
    qcclFloatInt = 69,  /* struct { float value; int32_t index; }, 8 bytes */
    qcclDoubleInt = 70, /* struct { double value; int32_t index; }, 16 bytes */
    qcclLongInt = 71,   /* struct { int64_t value; int32_t index; }, 16 bytes */
    qcclIntInt = 72,    /* struct { int32_t value; int32_t index; }, 8 bytes */
    qcclShortInt = 73   /* struct { int16_t value; int32_t index; }, 8 bytes */
};

/* How a reduction combines the values of ranks. The type decides which operations are possible:
 *
 *   integers       qcclSum, qcclProd, qcclMax, qcclMin, qcclAvg, the operations on bits and the
 *                  logical operations
 *   floats         qcclSum, qcclProd, qcclMax, qcclMin, qcclAvg
 *   complex types  qcclSum, qcclProd, qcclAvg
 *   qcclBool       qcclMax, qcclMin, the operations on bits and the logical operations
 *   pairs          qcclMinLoc, qcclMaxLoc
 *
 * A call with another combination returns qcclInvalidArgument, and its sentence names type and
 * operation. Collectives that do not reduce move every type and keep all of its bits.
 *
 * Sums of floats of 8, 16 and 32 bits are formed in fp32, sums of fp64 in fp64, and sums of
 * integers in their own type, in which they wrap around. The result is rounded once. qcclAvg
 * divides by the number of ranks after the last addition; integers truncate toward zero. In qcclMin
 * and qcclMax any NaN gives NaN, and -0 is less than +0.
 *
 * A complex sum adds the parts by themselves, and qcclAvg divides both. A complex product is
 * (a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re): each product and each sum is rounded by
 * itself in the type of the parts, and infinities get no treatment of their own.
 *
 * qcclBitAnd, qcclBitOr and qcclBitXor combine the bits of integers. The logical operations take
 * zero for false and every other integer for true, and give 1 for true and 0 for false in the type.
 * In qcclBool all of these operations are the logical ones, qcclMin is qcclLogicalAnd, and qcclMax
 * is qcclLogicalOr. The result is 0 or 1.
 *
 * qcclMinLoc and qcclMaxLoc give the pair with the smallest or the largest value. Among pairs with
 * equal values they give the one with the smallest index; -0 and +0 are equal, except that among
 * zeros with the same index qcclMinLoc prefers -0 and qcclMaxLoc +0. If a value is NaN, the result
 * has a NaN and the smallest index that a NaN has. So the result does not depend on the order in
 * which ranks are combined. The reduction writes zeros to the padding of a pair.
 *
 * Codecs encode floats, and complex numbers that are moved, summed or averaged: a codec sees them
 * as twice as many values of fp32 or fp64, and so do messages, statistics and traces of an encoded
 * call. A codec that a call names for other values is refused (qcclInvalidArgument); one that
 * comes from a setting leaves them unencoded.
 *
 * A result that covers the values of one rank alone (in a communicator of one rank, on rank 0 of a
 * scan and on rank 1 of an exscan) is a copy of these values. The copy keeps all bits: a true value
 * that is not 1, a NaN, and padding.
 *
 * A program makes operations of its own with qcclRedOpCreate, whose numbers begin at 1024. */
typedef int32_t qcclRedOp_t;
enum {
    qcclSum = 0,
    qcclProd = 1,
    qcclMax = 2,
    qcclMin = 3,
    qcclAvg = 4,
    qcclBitAnd = 64,
    qcclBitOr = 65,
    qcclBitXor = 66,
    qcclLogicalAnd = 67,
    qcclLogicalOr = 68,
    qcclLogicalXor = 69,
    qcclMinLoc = 70, /* MPI_MINLOC */
    qcclMaxLoc = 71  /* MPI_MAXLOC */
};

/* Handles. They look like pointers, but are numbers. A program only compares them and passes
 * them on. */
typedef struct qcclComm *qcclComm_t;
typedef struct qcclCodec *qcclCodec_t;
typedef struct qcclState *qcclState_t;

/* A stream does its work in order. A function that takes a stream reads it as the device of the
 * communicator says.
 *
 * On a communicator of the host:
 * - NULL and QCCL_STREAM_SYNC both mean that the call returns when its work is done.
 * - With a stream from qcclStreamCreate the call returns at once. The call uses its buffers until
 *   the stream has come past it.
 *
 * On a communicator of a GPU:
 * - Buffers are memory of that GPU, or managed memory.
 * - A stream is one of that GPU, as the vendor's runtime makes it (a cudaStream_t). NULL is the
 *   GPU's (legacy) default stream. The call returns at once. It runs when the stream has come to
 *   it, and the stream goes on when the call is done. The stream also goes on if the call has
 *   failed; qcclCommGetAsyncError then returns the error.
 * - With QCCL_STREAM_SYNC the call returns when it is done. The caller first waits for all work of
 *   its own streams on the buffers.
 * - On AMD's GPUs only QCCL_STREAM_SYNC is possible.
 *
 * While a stream of a GPU waits in a call for other ranks, a thread of the library starts work on
 * the GPU. The program must not hold up that work, on any rank:
 * - No thread makes a call that waits for the whole GPU, even if each rank is a process of its own:
 *   cudaDeviceSynchronize, cudaFree, cudaFreeHost, cudaHostUnregister, the first launch of a kernel
 *   that CUDA loads lazily (set CUDA_MODULE_LOADING=EAGER, or launch the kernel once before), and
 *   what PyTorch frees in order to try again when it is out of memory. The end of a communicator
 *   also waits for the whole GPU if the communicator sends through memory of the host: if ranks are
 *   on several hosts, some ranks have no GPU, or GPUs do not reach each other's memory; and after a
 *   call that needed more than QCCL_ARENA. Such a call may return only after the collective has
 *   failed with qcclTimeout.
 * - The stream does not have the greatest priority, because the library's own streams have it. A
 *   warning says so once.
 * - Ranks that are threads have enough queues of the GPU (CUDA_DEVICE_MAX_CONNECTIONS=32). With one
 *   queue, a stream that waits holds up the library's streams.
 * - Ranks that are threads and share a GPU have one stream each, and none of them uses the default
 *   stream, because work in a stream waits for the work before it.
 *
 * Graphs. A call may be captured into a graph. Each launch of the graph makes the call anew.
 * - All ranks capture the same calls in the same order, including the calls of captures that are
 *   discarded, and launch what they have captured equally often.
 * - The calls of one graph run in the order in which they were captured, also those in parallel
 *   branches.
 * - If a call of another launch, or a call that was not captured, could run at the same time,
 *   events must order the two calls, in the same way on all ranks. If ranks come to the calls in
 *   different orders, the communicator fails (qcclMismatch). If not all ranks are on GPUs of one
 *   vendor, a rank that cannot capture makes the call for each launch, and the ranks detect only
 *   that they made different calls.
 * - The caller waits for its launches before it ends the communicator. Calls to which a graph comes
 *   afterwards are not made. */
typedef void *qcclStream_t;
#define QCCL_STREAM_SYNC ((qcclStream_t)(intptr_t)-1)

/* ---- Versions and errors --------------------------------------------------------------------- */

/* Gives the version of the running library.
 *
 * version_out: receives the version, as QCCL_VERSION counts it (0.1.0 is 100).
 * Returns
 *   qcclInvalidArgument  version_out is NULL.
 *   No other error is possible.
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclGetVersion(int *version_out);

/* Returns a few words that describe a result. Never returns NULL, also not for a number that is no
 * result. The text is constant and lasts as long as the library.
 *
 * Threads: any. Does not block. */
QCCL_API const char *qcclGetErrorString(qcclResult_t result);

/* Returns the sentence that belongs to an error: which argument or rank is meant, what was
 * expected, and what came. Never returns NULL.
 *
 * comm: a communicator, or NULL.
 *   - A communicator gives the sentence of its latest call, whichever thread made that call, and ""
 *     if that call succeeded. A communicator that has failed gives the sentence of the failure
 *     instead of "", for good. qcclCommGetAsyncError, qcclCommCount, qcclCommUserRank, qcclExplain
 *     and qcclCommGetStats replace the sentence if they are refused, and leave it if they succeed.
 *     qcclGetErrorInfo and this function always leave it.
 *   - A communicator that has ended gives a sentence that says so. A value that never was a
 *     communicator gives "".
 *   - NULL gives the sentence of this thread's latest call, on any object, that did not succeed,
 *     and "" if there was none. Successful calls leave it, as they leave errno.
 * The text is valid until the same thread calls this function again.
 * Threads: any. Does not block. */
QCCL_API const char *qcclGetLastError(qcclComm_t comm);

/* The parts of the error whose sentence qcclGetLastError(comm) returns. */
typedef struct {
    size_t size;            /* the caller sets it to sizeof(qcclErrorInfo_t) before the call */
    qcclResult_t code;      /* qcclSuccess if the sentence is "" */
    int32_t rank;           /* this rank of the communicator */
    int32_t peer;           /* the rank at fault; -1: none is meant */
    int32_t collective;     /* 0 all-reduce, 1 reduce-scatter, 2 all-gather, 3 broadcast,
                             * 4 barrier, 5 qcclCommSplit, 6 qcclCommShrink, 7 reduce, 8 gather,
                             * 9 scatter, 10 all-to-all, 11 scan, 12 exscan, 13 send or
                             * receive; the v-forms of 14 all-gather, 15 reduce-scatter,
                             * 16 gather, 17 scatter, 18 all-to-all; -1 none */
    uint64_t call;          /* number of the collective on the communicator, from 1; 0: none */
    uint64_t tag;           /* qcclCollConfig_t::tag of that call */
    int64_t expected;       /* 0, as `got`, if nothing was compared */
    int64_t got;
    uint64_t reserved[4];
} qcclErrorInfo_t;
/* Gives the communicator's latest error in parts. Does not change the error.
 *
 * comm: must not be NULL.
 * info_out: its `size` must be set. Receives the parts.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  info_out is NULL, or its `size` is not possible. The caller sets `size`.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclGetErrorInfo(qcclComm_t comm, qcclErrorInfo_t *info_out);

/* ---- Settings of a communicator and of a call ------------------------------------------------
 * A program initialises a config with its macro, and from other languages with qcclConfigInit. A
 * field that is zero stands for the default. A field that this library does not know and that is
 * not zero is refused (qcclInvalidArgument), never ignored. The library copies strings. */

#define QCCL_CONFIG_MAGIC 0x4C434351U /* "QCCL" */

/* The library calls the functions of the two structs below from inside. These rules hold for both:
 * - On their communicator the functions may call qcclCommRevoke and the functions that only ask
 *   (for errors, size and rank, statistics, an explanation). Functions that enter or end the
 *   communicator (collectives, qcclCommFinalize, qcclCommDestroy, qcclCommAbort, ...) are refused
 *   there (qcclInvalidUsage). So is waiting for the stream whose thread makes the call.
 * - The functions must return.
 * - The library passes `context` on unchanged. What it points to must live until the communicator
 *   has been destroyed or aborted, or its creation has failed. */

/* The library calls `function` again and again while a collective waits long, from the thread that
 * waits; that may be a stream's thread. It serves for MPI's progress or Python's signals. The
 * library does not call it while a communicator is made. */
typedef struct {
    void (*function)(void *context); /* NULL: none */
    void *context;
} qcclIdle_t;

/* The library calls `function` with each line of the log that QCCL_DEBUG lets pass (level 1 warn,
 * 2 info, 3 trace), from any thread, from several threads at once, and from creation on. `line` is
 * valid during the call. */
typedef struct {
    void (*function)(int32_t level, const char *line, void *context);
    void *context;
} qcclLog_t;

/* The settings of one rank of a communicator. */
typedef struct {
    size_t size;            /* these three: set by QCCL_CONFIG_INIT and qcclConfigInit */
    uint32_t magic;
    uint32_t version;
    const char *device;     /* where the buffers of this rank's calls lie: "host" (default),
                             * "cuda:0", "hip:1", "emulated:0". Other ranks may be elsewhere. A
                             * device that this machine or this build of QCCL does not have, or
                             * whose driver is missing, is refused with qcclInvalidArgument */
    const char *codec;      /* for reductions that name none: "int8", "auto:nmse=1e-3". Calls that
                             * it cannot encode go lossless. "owner=exact" is refused */
    const char *algorithm;  /* "ring", "hierarchy:share=leader"; default: planned */
    double timeout;         /* seconds that creation and calls wait for a live rank that does not
                             * come; 0: QCCL_TIMEOUT; < 0: for ever; NaN is refused */
    double peer_timeout;    /* seconds, see below; 0: QCCL_PEER_TIMEOUT; < 0 and NaN are refused */
    qcclIdle_t idle;        /* default: none */
    qcclLog_t log;          /* default: stderr or QCCL_DEBUG_FILE */
    const char *name;       /* shown in logs, in errors, and by qccl-info attach. Items of
                             * QCCL_CODEC, QCCL_ALGO and plan files may ask for it (comm=dp*); then
                             * all ranks need the same name */
    int32_t reproducible;   /* 1: results have the same bits on every machine, see below;
                             * 0: QCCL_REPRODUCIBLE; other values are refused */
    int32_t nonblocking;    /* 1: creation and qcclCommFinalize return at once, see below; 0: they
                             * return when they are done; other values are refused */
    int64_t fusion;         /* bytes of small calls of a group that run as one call, see "Groups";
                             * 0: QCCL_FUSION; < 0: calls are not fused. All ranks need the same */
    uint64_t reserved[6];
} qcclConfig_t;

/* reproducible: the library chooses the algorithm of a call by the number of ranks, the collective,
 * root, count, type, op and codec alone, and sums ranks in an order that follows from their
 * numbers. A call then gives the same bits wherever the ranks are, on whatever devices, links and
 * cores, and for all values of QCCL_SEGMENT, QCCL_LANES and QCCL_ARENA. QCCL_ONESHOT_MAX,
 * QCCL_LINK_RATE, QCCL_LINK_LATENCY and QCCL_RACK_RATE have no effect. An algorithm that the caller
 * or QCCL_ALGO names is used, except `hierarchy`, whose sums follow the hosts: `hierarchy` is
 * refused (qcclInvalidArgument). A codec is used even if it makes the call slower. Calls may take
 * longer, because the choice does not depend on the machine. All ranks need the same value. Another
 * release may choose another algorithm. */

/* nonblocking: 1 is what a `blocking` of 0 is in NCCL. These functions then check their arguments
 * and return qcclInProgress, while a thread of the library goes on with their work: those that make
 * a communicator of this config, and qcclCommFinalize of that communicator. (qcclCommInitAll has no
 * config. qcclCommInitOob refuses the value, because the caller's all-gather needs its thread.)
 * Ranks may differ. All other calls are as on any communicator; host streams make them return at
 * once.
 * - Creation. The function gives the handle of the communicator. The program polls
 *   qcclCommGetAsyncError, which gives qcclInProgress, then qcclSuccess when the communicator is
 *   ready, or the code of a creation error; qcclGetLastError has the sentence.
 * - While a communicator is made, qcclCommGetAsyncError, qcclGetLastError, qcclGetErrorInfo,
 *   qcclCommDestroy and qcclCommAbort may be called. All other functions refuse the handle
 *   (qcclInvalidUsage). After a creation error they return that error.
 * - qcclCommAbort ends a creation, also one that hangs; the ranks that have met this one get a
 *   creation error. qcclCommDestroy waits for the creation. Both free the handle.
 * - A function that makes a communicator of the ranks of `comm` is inside `comm` until it is done:
 *   `comm` is in progress, too, and refuses other calls (qcclInvalidUsage). If the new communicator
 *   is aborted before all ranks have come to that function, `comm` fails (qcclRevoked), because the
 *   function takes part in its calls. Later only the new communicator is given up (qcclRevoked).
 * - qcclCommFinalize is inside the communicator until it is done. If it fails, the communicator
 *   has. */

/* peer_timeout: limits how long ranks that have met wait for each other. In creation it limits the
 * exchange of shared memory. If ranks disagree about a call and some ranks have not come to the
 * call, it limits the time until qcclMismatch (`timeout` does, if that is shorter). A host that
 * cannot be reached for longer counts as lost (qcclPeerLost); an outage of up to a third of
 * peer_timeout only costs time. Process death is detected at once, also on other hosts, and does
 * not depend on this timeout. A stopped (SIGSTOP) process counts as alive. */

/* A layer of an all-reduce: a part of its vector that travels by itself, see "layers" below.
 * A program fills the whole struct with zeros first. */
typedef struct {
    size_t count;         /* elements; may be 0 */
    qcclCodec_t codec;    /* NULL: what a call whose config has the `codec` of this call's uses */
    qcclState_t state;    /* of `count` elements, see "States"; NULL: none */
    int32_t dimensions;   /* of the tensor; 1: the layer is lossless; 0: the caller does not tell */
    uint32_t reserved[9]; /* 0 */
} qcclLayer_t;

/* The settings of one call. */
typedef struct {
    size_t size;            /* these three: set by QCCL_COLL_CONFIG_INIT and qcclConfigInit */
    uint32_t magic;
    uint32_t version;
    qcclCodec_t codec;      /* NULL: for reductions the communicator's, else QCCL_CODEC's, else the
                             * plan file's (QCCL_PLAN_FILE), else lossless. A codec that cannot
                             * encode the call is refused */
    const char *algorithm;  /* NULL: the communicator's, else QCCL_ALGO's, else the plan file's,
                             * else planned */
    double timeout;         /* of this call, as in qcclConfig_t; 0: the communicator's */
    uint64_t tag;           /* shown in errors and traces */
    uint64_t stride;        /* elements from the start of a block to the start of the next one in
                             * the caller's vectors, see below; 0: blocks follow one another */
    qcclState_t state;      /* of an all-reduce, reduce or reduce-scatter with qcclSum or qcclAvg:
                             * what a lossy codec loses in this call is added to the next call
                             * with the state, see "States"; NULL: it is lost */
    const qcclLayer_t *layers; /* of an all-reduce: the parts of the vector that travel by
                             * themselves, see below; NULL: the vector travels as one */
    size_t nlayers;         /* 1 to 16384; 0 if layers is NULL */
    uint64_t layer_min_size; /* layers of fewer elements are lossless; 0: QCCL_LAYER_MIN_SIZE; 1:
                             * none is for its size */
    uint64_t reserved[3];
} qcclCollConfig_t;

/* stride: of all-gather, reduce-scatter, gather, scatter and all-to-all. Block r of a vector with
 * blocks of all ranks begins r * stride elements behind the vector's start, and the vector ends
 * with the last block. Elements between blocks stay as they are. A buffer of one block has none. In
 * place, `rank * stride` takes the place of the block's count: the block of rank r lies where the
 * vector has it. Out of place, the two buffers of a call may lie in one another's gaps.
 * The stride is the rank's own: ranks may have different ones. Results have the same bytes as
 * without it. A codec with a guard is refused (qcclInvalidArgument), and so is a stride that is
 * less than the count of a block, one of another collective, and one of a v-form. */

#define QCCL_LAYER_MIN_SIZE 1024
/* layers: one call for a vector of several layers, such as a bucket with the gradients of a model.
 * Layer 0 begins at the start of `send` and `recv`, and each further layer behind the one before.
 * Together they have the call's `count` elements.
 * - The result has, bit for bit, what one all-reduce for each layer would give, made in the order
 *   of the list: blocks of a codec and chunks of an algorithm begin anew in each layer, and each
 *   layer draws the noise of a call of its own. Small layers share messages, as in a group (see
 *   "Groups"), and need not be neighbours for that.
 * - A layer is lossless, whatever codec it names, if it has fewer than layer_min_size elements, or
 *   if its `dimensions` are 1, as those of biases and norms are. Any other layer has its own codec;
 *   one without has the config's `codec`, else that of the communicator, QCCL_CODEC or the plan
 *   file, else none. qcclLayerCodecsGet gives codecs that fit the layers.
 * - Each layer may have a state of its own. The config's `state` stays NULL then. A layer that is
 *   lossless by the rules may have one, too.
 * - The config's algorithm, timeout and tag serve every layer. Without an algorithm each layer has
 *   one that suits its length.
 * - All ranks pass the same counts (qcclMismatch), and the same codecs and states as in calls for
 *   each layer. If ranks differ in the counts, every layer of the call tells it.
 * - The library reads the array only during the function, also if the call runs in a stream, is
 *   prepared (qcclCollCreate) or ends with a group.
 * - Refused (qcclInvalidArgument) are layers whose counts do not add up to `count`, a layer that
 *   its own call would refuse, and layers of other collectives; with qcclInvalidUsage two layers
 *   with one state, and a state that a call uses which has not ended. The sentence names the first
 *   layer at fault, as in "layers[3]". After a refusal no layer has been reduced, and no state has
 *   changed. After a failure some layers may have been reduced, and their states have changed.
 * Statistics and traces show the calls that run. */

/* Initialisers. They name every field, so that no compiler warns of a missing one. */
#define QCCL_CONFIG_INIT                                                                           \
    {sizeof(qcclConfig_t), QCCL_CONFIG_MAGIC, QCCL_VERSION, NULL, NULL, NULL, 0, 0,                \
     {NULL, NULL}, {NULL, NULL}, NULL, 0, 0, 0, {0}}
#define QCCL_COLL_CONFIG_INIT                                                                      \
    {sizeof(qcclCollConfig_t), QCCL_CONFIG_MAGIC, QCCL_VERSION, NULL, NULL, 0, 0, 0, NULL,        \
     NULL, 0, 0, {0}}

/* Initialises a config as the macros do, for languages without macros: fills it with zeros and sets
 * the three leading fields.
 *
 * config: a qcclConfig_t, a qcclCollConfig_t or a qcclStateConfig_t.
 * size: the size of that struct, in bytes.
 * Returns
 *   qcclInvalidArgument  config is NULL, or size is less than that of any config or more than 4096.
 *   No other error is possible.
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclConfigInit(void *config, size_t size);

/* ---- Creating and ending communicators ------------------------------------------------------- */

#define QCCL_UNIQUE_ID_BYTES 128
/* Names a rendezvous. A program copies its bytes and does not read them. */
typedef struct {
    char internal[QCCL_UNIQUE_ID_BYTES];
} qcclUniqueId;

/* Makes the id of one communicator, and serves the communicator's rendezvous from this process, in
 * the background: until the communicator is made, ranks have stayed away for QCCL_TIMEOUT, or the
 * process ends. The rendezvous listens on interfaces that are up: on all but the loopback, or on
 * those that QCCL_SOCKET_IFNAME names. That is a list as NCCL_SOCKET_IFNAME is one: "ib0,eth"
 * (names or beginnings of names; "=eth0" is a whole name), "^docker,virbr" (all but those), and
 * also addresses of IPv4 and IPv6.
 *
 * id_out: receives the id. It holds the addresses, which the ranks try in turn, and a secret. The
 *   program brings the id to the other ranks by a channel that it trusts.
 * Returns
 *   qcclInvalidArgument  id_out is NULL; or a setting (a QCCL_ variable, the plan file) cannot be
 *                        read or fits no interface. The caller corrects it and calls again.
 *   resource errors      qcclSystemError also if the process cannot listen.
 * Threads: any. Does not wait for other ranks. */
QCCL_API qcclResult_t qcclGetUniqueId(qcclUniqueId *id_out);

/* Makes the communicator of `id`, and joins it as rank `rank`.
 *
 * comm_out: receives the communicator. The caller ends it with qcclCommDestroy or qcclCommAbort.
 * nranks: number of ranks, at least 1 and equal on all ranks.
 * id: from qcclGetUniqueId of one process, the same on all ranks. The function only reads it.
 * rank: 0 <= rank < nranks. Each rank joins once.
 * config: NULL stands for the defaults. The function reads it only during the call.
 * Returns
 *   creation errors      qcclInvalidArgument also if nranks or rank is not possible, another
 *                        process has joined as this rank, or `id` is damaged or of another release.
 *                        After an error that ends the creation, all ranks need a new id.
 *   qcclInProgress       The config is nonblocking: comm_out has received the communicator, and a
 *                        thread of the library makes it.
 * Threads: any. Blocks until all ranks have joined, unless the config is nonblocking; `timeout`
 * limits each wait. */
QCCL_API qcclResult_t qcclCommInitRank(qcclComm_t *comm_out, int nranks, const qcclUniqueId *id,
                                       int rank);
QCCL_API qcclResult_t qcclCommInitRankConfig(qcclComm_t *comm_out, int nranks,
                                             const qcclUniqueId *id, int rank,
                                             const qcclConfig_t *config);

/* Makes all ranks of a communicator at once, for the threads of one process.
 *
 * A blocking call on one of these communicators returns when all ranks have made theirs, so each
 * rank needs a thread of its own. One thread can serve several ranks with host streams, one stream
 * for each rank, because work in a stream waits for the work before it. If the only thread of a
 * process waits for a call that it would have to make itself, the communicator fails with
 * qcclInvalidUsage.
 *
 * comms_out: an array of nranks communicators. comms_out[r] receives rank r's. The caller ends
 *   each.
 * nranks: 1 to 4096.
 * devices: NULL, or an array of nranks names, none of them NULL: the device of each rank, as
 *   qcclConfig_t::device names it. NULL: all ranks are on the host.
 * Returns
 *   creation errors      On error no communicator is left.
 * Threads: any. Blocks until all ranks are made; waits for no other process. */
QCCL_API qcclResult_t qcclCommInitAll(qcclComm_t *comms_out, int nranks,
                                      const char *const devices[]);

/* An all-gather of the caller, by which the ranks meet. Every rank gives the `bytes` bytes at
 * `mine` and receives those of all ranks, in rank order, at `all`. `allgather` returns 0 on
 * success, -qcclRemoteError if it knows that another rank will not come, and otherwise any number,
 * which the error's sentence states. */
typedef struct {
    int (*allgather)(const void *mine, void *all, size_t bytes, void *context);
    void *context; /* passed on unchanged */
} qcclOob_t;
/* Makes a communicator of the ranks that the caller's all-gather joins. For the communicators of
 * MPI there is qcclCommInitMpi in <qccl/mpi.h>.
 *
 * comm_out: receives the communicator. The caller ends it with qcclCommDestroy or qcclCommAbort.
 * nranks: number of ranks, at least 1 and equal on all ranks.
 * rank: 0 <= rank < nranks, the number that the all-gather gives this rank.
 * oob: the function calls oob->allgather several times, on the calling thread, and never after it
 *   has returned; *oob and its context need to live only so long. A rank that is refused for its
 *   arguments does not call oob->allgather.
 * config: NULL stands for the defaults. The function reads it only during the call.
 * Returns
 *   creation errors      qcclInvalidArgument also if the config is nonblocking, or the all-gather
 *                        does not give contributions in rank order; qcclSystemError also if the
 *                        all-gather returned an error; qcclRemoteError also if it returned
 *                        -qcclRemoteError.
 *   qcclInvalidUsage     The all-gather put other bytes in this rank's place than this rank gave.
 *                        The caller numbers the ranks as its all-gather does.
 * Threads: any. Blocks until all ranks have joined, for as long as the all-gather blocks. */
QCCL_API qcclResult_t qcclCommInitOob(qcclComm_t *comm_out, int nranks, int rank,
                                      const qcclOob_t *oob, const qcclConfig_t *config);

/* Makes a communicator of all ranks of a job, and joins as the rank that the launcher's environment
 * variables state. The ranks may come early or late, in any order. The function uses the first of
 * these pairs of which both variables are set:
 *   RANK and WORLD_SIZE                     torchrun, or by hand; with MASTER_ADDR and MASTER_PORT
 *   PMI_RANK and PMI_SIZE                   MPICH's mpiexec; PMI (PMI_FD) tells where rank 0 is
 *   OMPI_COMM_WORLD_RANK and ..._SIZE       Open MPI's mpirun, on one host, or with MASTER_ADDR
 *   SLURM_PROCID and SLURM_NTASKS           srun; rank 0 is on the first node of the step, or at
 *                                           MASTER_ADDR
 * If a variable is missing, the error's sentence names it.
 *
 * Port. Rank 0 listens at QCCL_PORT; else at the port after MASTER_PORT, because torchrun and torch
 * hold MASTER_PORT themselves; else, under mpirun and srun, at a port that follows from the job's
 * number. It listens on all interfaces, or on those that QCCL_SOCKET_IFNAME names.
 *
 * Security. A process that can reach that port and guess the values of the variables can join. The
 * program trusts the network, or puts a secret into the file that QCCL_SECRET_FILE names: the same
 * secret for all ranks, in a file that others may not read. With PMI the launcher's own connection
 * brings a secret, which is as safe as the launcher's network.
 *
 * Several communicators can be made one after the other, by all ranks together. A process that
 * joins as a rank that has joined already gets qcclInvalidArgument, and a process that comes after
 * the creation has failed gets the code of the failure, for rank 0's peer_timeout, as long as rank
 * 0's process lives. After that time such a process waits for the next creation. Two processes on
 * one host that are both rank 0 are told so, too. A program that uses MPI calls qcclCommInitMpi
 * instead, because a PMI connection serves only one of the two.
 *
 * comm_out: receives the communicator. The caller ends it with qcclCommDestroy or qcclCommAbort.
 * config: NULL stands for the defaults. The function reads it only during the call.
 * Returns
 *   creation errors      qcclInvalidArgument also if the launcher's variables or the secret file
 *                        are not valid, no address of rank 0 is known, or another process has
 *                        joined as this rank; qcclRemoteError also if two processes are rank 0;
 *                        qcclSystemError also if rank 0 cannot listen, for example because another
 *                        program holds the port (QCCL_PORT chooses another one).
 *   qcclInProgress       The config is nonblocking: comm_out has received the communicator, and a
 *                        thread of the library makes it.
 * Threads: any. Blocks until all ranks have joined, unless the config is nonblocking; `timeout`
 * limits each wait. */
QCCL_API qcclResult_t qcclCommInitEnv(qcclComm_t *comm_out, const qcclConfig_t *config);

#define QCCL_SPLIT_NOCOLOR (-1)
#define QCCL_SPLIT_NODE (-2)
/* Makes a communicator of the ranks of `comm` that give the same color. Every rank of `comm` calls
 * it, in the same order as its collectives. The ranks meet over `comm`: they need no id, and no
 * connections but those of its transport.
 *
 * comm: the call enters it. It stays usable, and the new communicator does not depend on it.
 * color: 0 or more; or QCCL_SPLIT_NOCOLOR: the rank takes part in the call and gets NULL; or
 *   QCCL_SPLIT_NODE: the color of the rank's host, which differs from all others. Ranks that share
 *   memory are on one host.
 * key: the ranks of one color are numbered in the order of their keys, and in the order of their
 *   ranks in `comm` if keys are equal.
 * comm_out: receives the new communicator, or NULL. The caller ends it like any other.
 * config: settings of the new communicator, read only during the call. They must be equal where
 *   those of ranks of one color have to be. NULL stands for the config that `comm` was made with;
 *   its functions and contexts then serve both communicators.
 * Returns
 *   entry errors
 *   qcclInvalidArgument  color, comm_out or config is not valid. The caller corrects it and calls
 *                        again.
 *   creation errors      They fail the call for the ranks of one color alone. `comm` stays usable,
 *                        unless a rank is lost.
 *   failures             `comm` has failed, or fails because ranks made different calls or a rank
 *                        did not come.
 *   qcclInvalidUsage     also if another thread ended `comm` meanwhile.
 *   qcclRevoked          also if another rank of the same color did; the sentence names it.
 *   qcclInProgress       The config is nonblocking: comm_out has received the new communicator, or
 *                        NULL, and a thread of the library goes on.
 * Threads: one at a time in `comm`. Blocks unless the config is nonblocking: waits for the calls
 * that this rank has enqueued, and returns when the ranks of its own color are complete. The
 * `timeout` of config, or else that of `comm`, limits each wait. */
QCCL_API qcclResult_t qcclCommSplit(qcclComm_t comm, int color, int key, qcclComm_t *comm_out,
                                    const qcclConfig_t *config);

/* Makes a communicator of all ranks of `comm`, in the same order: calls on one do not wait for
 * calls on the other. It is a split in which all ranks have one color.
 *
 * comm, comm_out, config: as in qcclCommSplit.
 * Returns
 *   the codes of qcclCommSplit; qcclMismatch also if another rank calls qcclCommSplit.
 * Threads: one at a time in `comm`. Blocks as qcclCommSplit does. */
QCCL_API qcclResult_t qcclCommDup(qcclComm_t comm, qcclComm_t *comm_out,
                                  const qcclConfig_t *config);

/* Makes a communicator of all ranks of `comm` and of new ranks, which join a running job. The ranks
 * of `comm` keep their numbers, and the new ranks have the numbers after them. All ranks join by a
 * unique id, as in qcclCommInitRank: one rank of `comm` makes it with qcclGetUniqueId, passes it,
 * and the program brings it to the new ranks.
 *
 * comm: a rank of the old communicator passes it; the call enters it, and every rank of `comm`
 *   makes it, in the same order as its collectives. It stays usable. A new rank passes NULL; for it
 *   the function is qcclCommInitRankConfig.
 * nranks: number of ranks of the new communicator, more than `comm` has, and equal on all ranks.
 * id: new ranks and at least one rank of `comm` pass it. The other ranks of `comm` may pass NULL,
 *   and get it from that rank.
 * rank: a rank of `comm` passes -1; a new rank its number, from the size of `comm` to nranks - 1.
 * comm_out: receives the new communicator. The caller ends it like any other.
 * config: settings of the new communicator, read only during the call. They must be equal where
 *   those of all ranks have to be. NULL stands for the config of `comm`, and on a new rank for the
 *   defaults.
 * Returns
 *   entry errors         of `comm`
 *   qcclInvalidArgument  nranks, rank, comm_out or config is not valid. The caller corrects it and
 *                        calls again. On all ranks of `comm`: none of them has passed an id.
 *   creation errors      also qcclMismatch if the ranks of `comm` pass different ids or numbers of
 *                        ranks, or another one calls qcclCommSplit or qcclCommDup; and
 *                        qcclRemoteError on the other ranks of `comm` if one of them could not
 *                        join, for example because a new rank has taken its number. There is no
 *                        new communicator, and `comm` stays usable unless a rank is lost. All ranks
 *                        begin again, with a new id.
 *   failures             `comm` has failed, or fails because ranks made different calls or a rank
 *                        did not come.
 *   qcclInProgress       The config is nonblocking: comm_out has received the new communicator, and
 *                        a thread of the library goes on.
 * Threads: one at a time in `comm`. Blocks unless the config is nonblocking: waits for the calls
 * that this rank has enqueued, and for all ranks, old and new. The `timeout` of config, or else
 * that of `comm`, limits each wait. */
QCCL_API qcclResult_t qcclCommGrow(qcclComm_t comm, int nranks, const qcclUniqueId *id, int rank,
                                   qcclComm_t *comm_out, const qcclConfig_t *config);

/* Flags of qcclCommShrink. */
enum {
    QCCL_SHRINK_DEFAULT = 0,
    QCCL_SHRINK_ABORT = 1 /* first ends all calls on `comm`, on every rank (qcclRevoked) */
};
/* Makes a communicator of the ranks of `comm` that are left: those that have neither died nor ended
 * `comm`, without the excluded ones, in the order that they had. It is meant for a communicator
 * that has failed, and works on one that has not.
 *
 * Which ranks take part
 * - Every rank that is to be left calls it, with the same list of excluded ranks. Excluded ranks do
 *   not call it.
 * - A rank that dies meanwhile is left out, too, whichever rank it is. Either all ranks that are
 *   left have the new communicator, or none has. If a rank dies at the very end, the next call on
 *   the new communicator reports it.
 * - The ranks wait for a rank that lives and does not come as long as `timeout` says; then they get
 *   qcclTimeout, which names the rank.
 * - If a rank makes another call of `comm` instead, while `comm` has not failed and none of its
 *   ranks has died, `comm` fails on all ranks (qcclMismatch).
 * - A rank that `exclude` has left out is left out by all later shrinks of `comm`, whatever they
 *   exclude. If it calls qcclCommShrink, it gets qcclPeerLost.
 * - Ranks that cannot reach each other count each other as dead. A job that falls into two halves
 *   goes on as two.
 *
 * Earlier mismatches
 * - If `comm` has failed with a qcclMismatch that this rank has not been told, qcclCommShrink
 *   returns that error, and shrinks when it is called again. The other ranks wait for the second
 *   call. They wait no longer than peer_timeout for a rank that makes other calls instead.
 * - If `comm` has failed otherwise, and the ranks that are left made different calls before, each
 *   of them gets qcclMismatch once, because their data may differ.
 *
 * comm: the call enters it. It stays as it was, and its owner has to end it.
 * exclude: exclude_count different ranks of `comm`, not the caller's own. NULL with a count of 0:
 *   none.
 * exclude_count: 0 or more.
 * comm_out: receives the new communicator. The caller ends it like any other.
 * config: as for qcclCommSplit.
 * flags: QCCL_SHRINK_DEFAULT or QCCL_SHRINK_ABORT.
 * Returns
 *   entry errors         With QCCL_SHRINK_ABORT another thread that is inside is no error: its call
 *                        ends with qcclRevoked, and the shrink waits for it to leave.
 *   qcclInvalidArgument  exclude, exclude_count, comm_out, config or flags is not valid. The caller
 *                        corrects it and calls again.
 *   qcclInvalidUsage     also if another thread ended `comm` meanwhile.
 *   qcclMismatch         as above; or the ranks exclude different ranks, or their configs differ.
 *   qcclPeerLost         The other ranks have gone on without this rank. The caller ends `comm`.
 *   qcclTimeout          A rank did not come. The caller may exclude it.
 *   qcclRemoteError      A rank could not make the new communicator.
 *   creation errors
 *   qcclRevoked          Another thread aborted `comm` meanwhile.
 *   qcclInProgress       The config is nonblocking: comm_out has received the new communicator, and
 *                        a thread of the library goes on. If this rank aborts the new communicator
 *                        meanwhile, the others wait until it ends `comm`, too, or for `timeout`.
 *   After any error all ranks may call it again.
 * Threads: one at a time in `comm`. Blocks unless the config is nonblocking: waits for the calls
 * that this rank has enqueued and for the other ranks. */
QCCL_API qcclResult_t qcclCommShrink(qcclComm_t comm, const int exclude[], int exclude_count,
                                     qcclComm_t *comm_out, const qcclConfig_t *config, int flags);

/* Waits until the work that is enqueued on `comm` is done, on every stream, and until every rank
 * has begun the calls that this rank has made, and compares these calls. The comparison is needed
 * because a rank that only sends may return from a call before the other ranks have come to it, and
 * before the library can know that they made the same call. `comm` stays usable.
 *
 * comm: the call enters it.
 * Returns
 *   entry errors
 *   failures             qcclMismatch if ranks made different calls, qcclPeerLost and qcclTimeout
 *                        if a rank does not come, else the error that failed the communicator.
 *   qcclInProgress       The communicator's config is nonblocking: a thread of the library waits.
 * Threads: one at a time in `comm`. Blocks unless the config is nonblocking; `timeout` limits the
 * wait for other ranks. */
QCCL_API qcclResult_t qcclCommFinalize(qcclComm_t comm);
/* Waits and compares as qcclCommFinalize does, and then frees the communicator, whatever the
 * comparison gives. A communicator that has failed, or is revoked meanwhile, is freed without
 * waiting for other ranks. A peer that still waits for this rank is told. A process that ends
 * without this call counts as dead for the other ranks, and their call may fail although this
 * rank's has returned.
 *
 * comm: NULL does nothing.
 * Returns
 *   qcclSuccess          Also for a communicator that has failed.
 *   handle errors        Nothing has happened.
 *   qcclInvalidUsage     also while another thread is inside, and in the idle or log function, also
 *                        in that of its creation. Nothing has happened; the caller destroys the
 *                        communicator later.
 *   qcclMismatch         Ranks made different calls; also a mismatch by which the communicator
 *                        failed earlier, if this rank has not been told: no call, no function of
 *                        its stream or of a request and no qcclCommGetAsyncError has returned it.
 *   other failures       as in qcclCommFinalize, if the communicator had not failed before.
 *                        qcclMismatch and these codes come when the communicator has been freed.
 *   resource errors
 * Threads: any that is not inside `comm`. Blocks as a blocking qcclCommFinalize does, and until a
 * creation and nonblocking calls are done. */
QCCL_API qcclResult_t qcclCommDestroy(qcclComm_t comm);
/* Ends the calls and the creation that this rank is in, fails the communicator on every rank
 * (qcclRevoked), and frees it here. A call of another thread that is inside returns first
 * (qcclRevoked, unless the communicator had failed before), and later calls get qcclInvalidUsage.
 *
 * comm: must not be NULL.
 * Returns
 *   handle errors
 *   qcclInvalidUsage     Another thread is already destroying or aborting `comm`: this call speeds
 *                        up that one. Or the caller is the idle or log function: nothing has
 *                        happened.
 *   resource errors
 * Threads: any, except from the idle and log functions. Waits until threads of this rank have left
 * `comm`; does not wait for other ranks. */
QCCL_API qcclResult_t qcclCommAbort(qcclComm_t comm);
/* Fails the communicator on every rank (qcclRevoked), and keeps it, for example for qcclCommShrink.
 * A communicator that has failed keeps its first failure.
 *
 * comm: must not be NULL.
 * Returns
 *   handle errors, resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclCommRevoke(qcclComm_t comm);
/* Tells whether the communicator has failed, and whether its enqueued work is done.
 *
 * comm: must not be NULL. It may be nonblocking and not be made yet.
 * result_out: receives the code that failed the communicator, or its creation; else qcclInProgress
 *   while it is made, while a nonblocking call is inside it, and while enqueued work runs; else
 *   qcclSuccess.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  result_out is NULL.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclCommGetAsyncError(qcclComm_t comm, qcclResult_t *result_out);

/* Give the number of ranks of the communicator, and this rank's number.
 *
 * comm: must not be NULL.
 * count_out, rank_out: receives the number.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  count_out or rank_out is NULL.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclCommCount(qcclComm_t comm, int *count_out);
QCCL_API qcclResult_t qcclCommUserRank(qcclComm_t comm, int *rank_out);

/* ---- Collectives -----------------------------------------------------------------------------
 * Every rank of `comm` calls the same function with equal count, type, op, root, codec and
 * algorithm, and all ranks make their calls in the same order. What follows holds for all
 * collectives; the comment of each function adds what differs. The forms without `Config` are the
 * same as the forms with a config of NULL.
 *
 * send, recv: memory of the communicator's device (see qcclStream_t). The call reads `send` and
 *   writes `recv`. The caller owns both. With a stream they stay in use until the stream has come
 *   past the call. The two may overlap only in the in-place form that the function names.
 * count, recv_count, send_count: in elements. 0 is allowed, with NULL buffers, and the ranks still
 *   compare their calls.
 * type, op: values of qcclDataType_t and qcclRedOp_t.
 * comm: the call enters it.
 * stream: see qcclStream_t.
 * config: settings of this call, read only during the call; the codec that it names may be
 *   destroyed afterwards. NULL stands for the defaults.
 * Returns
 *   qcclSuccess          Without a stream, or with QCCL_STREAM_SYNC: the call is done on this rank.
 *                        With a stream: the call is enqueued.
 *   entry errors
 *   qcclInvalidArgument  An argument is not valid: an unknown type, op or root; an op that the type
 *                        does not have; a count that memory cannot hold; a buffer that is NULL,
 *                        overlaps the other one, or is not in the device's memory; a stream of
 *                        another kind; a field of config; an algorithm that this collective does
 *                        not have; a codec that cannot encode the call. The caller corrects it and
 *                        calls again.
 *   qcclInvalidUsage     also if the stream or the codec has been destroyed, a stream of this GPU
 *                        cannot wait for the host, or the call cannot be captured. The caller uses
 *                        another handle, or QCCL_STREAM_SYNC.
 *   failures             qcclTimeout, qcclMismatch, qcclPeerLost, qcclRevoked, qcclRemoteError,
 *                        qcclDamagedData, qcclUnhandledDeviceError, qcclSystemError,
 *                        qcclInternalError, and qcclInvalidUsage on communicators of
 *                        qcclCommInitAll.
 *   A call on a host stream returns its own failure later: by the request behind it, or the first
 *   qcclStreamSynchronize or qcclStreamQuery; by qcclCommGetAsyncError, and by every later call on
 *   `comm`. A call on a GPU's stream returns it by qcclCommGetAsyncError and by every later call on
 *   `comm`.
 * Threads: one at a time in `comm`. Blocks without a stream and with QCCL_STREAM_SYNC; a stream
 *   makes the call return without waiting for other ranks. `timeout` limits each wait for a live
 *   rank.
 *
 * Mismatches. If ranks disagree about a call, every rank gets qcclMismatch. Its sentence names the
 * lowest rank that differs from rank 0, and both values. If rank 0 does not come within
 * peer_timeout, the comparison starts from the lowest rank that has come. A rank that only sends
 * (the root of a broadcast or scatter, the others in a reduce or gather, the first of a scan) waits
 * for no other rank and may have returned by then. It gets qcclMismatch from its next call in which
 * it receives anything, at the latest from qcclCommFinalize or qcclCommDestroy. */

/* All-reduce: combines the vectors of all ranks element by element, and leaves the same result on
 * every rank.
 *
 * send, recv: `count` elements each. In place: recv == send. */
QCCL_API qcclResult_t qcclAllReduce(const void *send, void *recv, size_t count, qcclDataType_t type,
                                    qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclAllReduceConfig(const void *send, void *recv, size_t count,
                                          qcclDataType_t type, qcclRedOp_t op, qcclComm_t comm,
                                          qcclStream_t stream, const qcclCollConfig_t *config);

/* Reduce-scatter: combines the vectors of all ranks element by element, and leaves block r of the
 * result on rank r.
 *
 * send: nranks * recv_count elements.
 * recv: recv_count elements. In place: recv == send + rank * recv_count elements. */
QCCL_API qcclResult_t qcclReduceScatter(const void *send, void *recv, size_t recv_count,
                                        qcclDataType_t type, qcclRedOp_t op, qcclComm_t comm,
                                        qcclStream_t stream);
QCCL_API qcclResult_t qcclReduceScatterConfig(const void *send, void *recv, size_t recv_count,
                                              qcclDataType_t type, qcclRedOp_t op, qcclComm_t comm,
                                              qcclStream_t stream, const qcclCollConfig_t *config);

/* All-gather: leaves the blocks of all ranks, in rank order, on every rank. With a codec a rank has
 * of its own block, too, what the others decode. With "owner=exact" the block stays exact, and in
 * place it is not written.
 *
 * send: send_count elements. In place: send == recv + rank * send_count elements.
 * recv: nranks * send_count elements. */
QCCL_API qcclResult_t qcclAllGather(const void *send, void *recv, size_t send_count,
                                    qcclDataType_t type, qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclAllGatherConfig(const void *send, void *recv, size_t send_count,
                                          qcclDataType_t type, qcclComm_t comm, qcclStream_t stream,
                                          const qcclCollConfig_t *config);

/* Broadcast: leaves the root's vector on every rank. With a codec the root, too, receives what the
 * others decode. With "owner=exact" it receives its vector as it is, and in place nothing is
 * written on it.
 *
 * send: `count` elements, read on the root only. It may be NULL on other ranks.
 * recv: `count` elements. In place: recv == send.
 * root: a rank, equal on all ranks. */
QCCL_API qcclResult_t qcclBroadcast(const void *send, void *recv, size_t count, qcclDataType_t type,
                                    int root, qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclBroadcastConfig(const void *send, void *recv, size_t count,
                                          qcclDataType_t type, int root, qcclComm_t comm,
                                          qcclStream_t stream, const qcclCollConfig_t *config);

/* Reduce: combines the vectors of all ranks element by element, and leaves the result on the root.
 * Codecs with a guard are refused (qcclInvalidArgument), because only the root hears of the error.
 *
 * send: `count` elements.
 * recv: `count` elements, written on the root only. It may be NULL on other ranks. In place on the
 *   root: recv == send.
 * root: a rank, equal on all ranks. */
QCCL_API qcclResult_t qcclReduce(const void *send, void *recv, size_t count, qcclDataType_t type,
                                 qcclRedOp_t op, int root, qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclReduceConfig(const void *send, void *recv, size_t count,
                                       qcclDataType_t type, qcclRedOp_t op, int root,
                                       qcclComm_t comm, qcclStream_t stream,
                                       const qcclCollConfig_t *config);

/* Gather: leaves the blocks of all ranks, in rank order, on the root. The root's own block stays
 * exact with any codec. Codecs with a guard are refused (qcclInvalidArgument), because only the
 * root hears of the error.
 *
 * send: send_count elements. In place on the root: send == recv + root * send_count elements.
 * recv: nranks * send_count elements, written on the root only. It may be NULL on other ranks.
 * root: a rank, equal on all ranks. */
QCCL_API qcclResult_t qcclGather(const void *send, void *recv, size_t send_count,
                                 qcclDataType_t type, int root, qcclComm_t comm,
                                 qcclStream_t stream);
QCCL_API qcclResult_t qcclGatherConfig(const void *send, void *recv, size_t send_count,
                                       qcclDataType_t type, int root, qcclComm_t comm,
                                       qcclStream_t stream, const qcclCollConfig_t *config);

/* Scatter: leaves block r of the root's vector on rank r. The root's own block stays exact with any
 * codec.
 *
 * send: nranks * recv_count elements, read on the root only. It may be NULL on other ranks.
 * recv: recv_count elements. In place on the root: recv == send + root * recv_count elements.
 * root: a rank, equal on all ranks. */
QCCL_API qcclResult_t qcclScatter(const void *send, void *recv, size_t recv_count,
                                  qcclDataType_t type, int root, qcclComm_t comm,
                                  qcclStream_t stream);
QCCL_API qcclResult_t qcclScatterConfig(const void *send, void *recv, size_t recv_count,
                                        qcclDataType_t type, int root, qcclComm_t comm,
                                        qcclStream_t stream, const qcclCollConfig_t *config);

/* All-to-all: block j of rank i's vector becomes block i of rank j's. A rank's block for itself
 * stays exact with any codec.
 *
 * send, recv: nranks * count elements each. In place: recv == send.
 * count: elements of one block. */
QCCL_API qcclResult_t qcclAllToAll(const void *send, void *recv, size_t count, qcclDataType_t type,
                                   qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclAllToAllConfig(const void *send, void *recv, size_t count,
                                         qcclDataType_t type, qcclComm_t comm, qcclStream_t stream,
                                         const qcclCollConfig_t *config);

/* V-forms: collectives whose parts have counts of their own, as in MPI_Allgatherv and its like.
 * The rules of the collective hold for its v-form, besides these:
 * - counts and displs are arrays with an entry for each rank, in elements. Part r has counts[r]
 *   elements, and begins displs[r] elements behind the buffer's start. displs may be NULL: the
 *   parts follow one another in rank order. The library reads both arrays only until the function
 *   returns, also if the call runs in a stream or ends with a group.
 * - A count may be 0. Parts of a receive buffer must not overlap; parts of a send buffer may.
 *   Elements of a receive buffer that belong to no part stay as they are.
 * - A codec with a guard is refused (qcclInvalidArgument).
 * - In qcclAllGatherV and qcclReduceScatterV all ranks pass the same counts. Ranks that do not are
 *   a qcclMismatch. The displacements are each rank's own.
 * - In qcclGatherV, qcclScatterV and qcclAllToAllV a rank knows the counts of its own parts alone,
 *   and each part goes straight from its sender to its receiver (algorithms direct, oneshot and,
 *   for qcclAllToAllV, pairwise; other algorithms that the environment names are passed over). A
 *   receiver that expects another count than the sender sends fails with qcclMismatch, and its
 *   sentence has both ranks and both counts. No rank knows whether the others' parts are small, so
 *   a codec's `min` does not count, and codecs and rules by size take each part for 2^20 elements.
 *
 * qcclAllGatherV
 *   send: counts[rank] elements. In place: send == recv + displs[rank] elements.
 *   recv: parts from all ranks.
 * qcclReduceScatterV
 *   send: parts for all ranks.
 *   recv: counts[rank] elements. In place: recv == send + displs[rank] elements.
 * qcclGatherV
 *   send: send_count elements. In place on the root: send == recv + displs[root] elements.
 *   recv, counts, displs: parts from all ranks; read and written on the root only, and may be NULL
 *     on other ranks. counts[root] is the root's send_count.
 * qcclScatterV
 *   send, counts, displs: parts for all ranks; read on the root only, and may be NULL on other
 *     ranks. counts[root] is the root's recv_count.
 *   recv: recv_count elements. In place on the root: recv == send + displs[root] elements.
 * qcclAllToAllV
 *   send: parts for all ranks. send_counts[r] is what rank r has as recv_counts[rank].
 *   recv: parts from all ranks. In place: recv == send, with the same counts and displacements for
 *     what is sent and what is received. The two buffers may also lie in one another's gaps. */
QCCL_API qcclResult_t qcclAllGatherV(const void *send, void *recv, const size_t counts[],
                                     const size_t displs[], qcclDataType_t type, qcclComm_t comm,
                                     qcclStream_t stream);
QCCL_API qcclResult_t qcclAllGatherVConfig(const void *send, void *recv, const size_t counts[],
                                           const size_t displs[], qcclDataType_t type,
                                           qcclComm_t comm, qcclStream_t stream,
                                           const qcclCollConfig_t *config);
QCCL_API qcclResult_t qcclReduceScatterV(const void *send, void *recv, const size_t counts[],
                                         const size_t displs[], qcclDataType_t type, qcclRedOp_t op,
                                         qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclReduceScatterVConfig(const void *send, void *recv, const size_t counts[],
                                               const size_t displs[], qcclDataType_t type,
                                               qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream,
                                               const qcclCollConfig_t *config);
QCCL_API qcclResult_t qcclGatherV(const void *send, size_t send_count, void *recv,
                                  const size_t counts[], const size_t displs[], qcclDataType_t type,
                                  int root, qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclGatherVConfig(const void *send, size_t send_count, void *recv,
                                        const size_t counts[], const size_t displs[],
                                        qcclDataType_t type, int root, qcclComm_t comm,
                                        qcclStream_t stream, const qcclCollConfig_t *config);
QCCL_API qcclResult_t qcclScatterV(const void *send, const size_t counts[], const size_t displs[],
                                   void *recv, size_t recv_count, qcclDataType_t type, int root,
                                   qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclScatterVConfig(const void *send, const size_t counts[],
                                         const size_t displs[], void *recv, size_t recv_count,
                                         qcclDataType_t type, int root, qcclComm_t comm,
                                         qcclStream_t stream, const qcclCollConfig_t *config);
QCCL_API qcclResult_t qcclAllToAllV(const void *send, const size_t send_counts[],
                                    const size_t send_displs[], void *recv,
                                    const size_t recv_counts[], const size_t recv_displs[],
                                    qcclDataType_t type, qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclAllToAllVConfig(const void *send, const size_t send_counts[],
                                          const size_t send_displs[], void *recv,
                                          const size_t recv_counts[], const size_t recv_displs[],
                                          qcclDataType_t type, qcclComm_t comm, qcclStream_t stream,
                                          const qcclCollConfig_t *config);

/* Scan and exscan: combine the vectors element by element, for each rank those of the ranks up to
 * itself (scan) or before it (exscan). With a codec the ranks after a rank build on what that rank
 * has received. qcclAvg is refused (qcclInvalidArgument), and so are codecs with a guard, because
 * some ranks receive nothing and hear of no error.
 *
 * send: `count` elements.
 * recv: `count` elements. In place: recv == send. The exscan of rank 0 has no result: it does not
 *   write recv, which may be NULL there. */
QCCL_API qcclResult_t qcclScan(const void *send, void *recv, size_t count, qcclDataType_t type,
                               qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclScanConfig(const void *send, void *recv, size_t count,
                                     qcclDataType_t type, qcclRedOp_t op, qcclComm_t comm,
                                     qcclStream_t stream, const qcclCollConfig_t *config);
QCCL_API qcclResult_t qcclExscan(const void *send, void *recv, size_t count, qcclDataType_t type,
                                 qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclExscanConfig(const void *send, void *recv, size_t count,
                                       qcclDataType_t type, qcclRedOp_t op, qcclComm_t comm,
                                       qcclStream_t stream, const qcclCollConfig_t *config);

/* Send, receive: move a vector from one rank to another. Only these two ranks make the calls. What
 * one rank sends, the other receives in the same order; there is no order with their other calls.
 * A send of few bytes may return before the receiver has called; a longer one waits for it. So two
 * ranks that both send first may wait for each other: qcclSendRecv and groups do not.
 * The first time that two ranks send or receive between them, each waits until the other does, too,
 * and takes memory for that: 2 MiB, and buffers for small messages.
 *
 * send, recv: `count` elements. Both ranks name the same count, type, codec and algorithm.
 * peer: the other rank. qcclSendRecv copies values within a rank.
 * Mismatches: the receiver gets qcclMismatch, which fails the communicator on all ranks. */
QCCL_API qcclResult_t qcclSend(const void *send, size_t count, qcclDataType_t type, int peer,
                               qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclSendConfig(const void *send, size_t count, qcclDataType_t type, int peer,
                                     qcclComm_t comm, qcclStream_t stream,
                                     const qcclCollConfig_t *config);
QCCL_API qcclResult_t qcclRecv(void *recv, size_t count, qcclDataType_t type, int peer,
                               qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclRecvConfig(void *recv, size_t count, qcclDataType_t type, int peer,
                                     qcclComm_t comm, qcclStream_t stream,
                                     const qcclCollConfig_t *config);
/* Sends to one rank and receives from one, at the same time: ranks that do this in a circle do not
 * wait for each other.
 *
 * send: send_count elements for rank `dest`. recv: recv_count elements from rank `source`. The two
 *   may not overlap. If one of the ranks is this one, both are, and the counts are equal; a GPU's
 *   communicator refuses that (qcclInvalidArgument).
 * stream: a GPU's communicator needs QCCL_STREAM_SYNC (qcclInvalidArgument). */
QCCL_API qcclResult_t qcclSendRecv(const void *send, size_t send_count, int dest, void *recv,
                                   size_t recv_count, int source, qcclDataType_t type,
                                   qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclSendRecvConfig(const void *send, size_t send_count, int dest, void *recv,
                                         size_t recv_count, int source, qcclDataType_t type,
                                         qcclComm_t comm, qcclStream_t stream,
                                         const qcclCollConfig_t *config);

/* Exact sum: sums the values of all ranks without an error and rounds the result once, to the
 * nearest double with ties to even. The result is the same on every rank, and its bits depend on
 * the values alone: neither their order nor the number of ranks, nor which rank has which of them,
 * matters. No partial sum overflows. The codec "exact" does the same for each element of a vector.
 *
 * values: `count` of them; ranks may have different counts, and NULL with count 0. Any NaN, and
 *   infinities of both signs, give NaN. Only negative zeros give -0; no values at all give 0.
 * sum_out: receives the sum; written only on success.
 *
 * The ranks exchange their sums by one all-gather of 36 words (qcclUint64), and other calls see it
 * as that: qcclErrorInfo_t, traces, statistics. Every rank sums in memory of its own, 20 KiB.
 *
 * Returns
 *   qcclSuccess, entry errors
 *   qcclInvalidArgument  sum_out is NULL; values is NULL and count is not 0; count is more than
 *                        memory can hold; the device of a rank is a GPU.
 *   qcclInvalidUsage     also within a group.
 *   qcclOutOfMemory      and the other failures of a collective call
 * Threads: one at a time in `comm`. Blocks until all ranks have called. */
QCCL_API qcclResult_t qcclSumExact(const double *values, size_t count, double *sum_out,
                                   qcclComm_t comm);

/* Barrier: returns, or lets the stream go on, when every rank has come. Its config must not name a
 * codec (qcclInvalidArgument). */
QCCL_API qcclResult_t qcclBarrier(qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclBarrierConfig(qcclComm_t comm, qcclStream_t stream,
                                        const qcclCollConfig_t *config);

/* ---- Groups ----------------------------------------------------------------------------------
 * Collectives, sends and receives between the two functions are made together at the end: sends and
 * receives in any order, and calls on several communicators of this thread, whose ranks would
 * otherwise wait for each other.
 * - A call in a group checks its arguments, and returns what is wrong with them. Then the whole
 *   group makes no call. Its buffers, and the codec that its config names, must stay until the
 *   group's end.
 * - Collectives of one communicator keep their order, and so do the messages of two ranks in one
 *   direction. Everything else may happen in any order.
 * - Small all-reduces, all-gathers and reduce-scatters that follow one another in a communicator
 *   are fused: calls of one kind run as one call, with the bits that each has by itself. Statistics
 *   and traces show the one call, with the first one's tag; it waits for as long as the most
 *   patient one. Fused are calls on memory of the host, whose vectors have at most 64 KiB and which
 *   have the same stream; of one kind are those of the same collective, type, operation, algorithm
 *   and codec. Calls that use what another one writes follow it. Codecs with stochastic rounding or
 *   a guard, topk, and buckets as long as a chunk are not fused; onebit, norm and skip_incomplete
 *   are if their buckets are complete. All ranks put the calls into the same groups (qcclMismatch
 *   otherwise). QCCL_FUSION, or the communicator's `fusion`, limits the bytes that run as one call.
 * - Other functions do not wait for the group's end: splits, prepared calls and the ends of
 *   communicators, for example. qcclCommDestroy warns of calls that the group still has, and which
 *   are lost.
 * - In a group, messages of a GPU's communicator need QCCL_STREAM_SYNC.
 * Groups belong to one thread, and may be nested: the outermost end makes the calls. */

/* Begins a group.
 *
 * Returns
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclGroupStart(void);
/* Ends the group, and makes its calls if it is the outermost one.
 *
 * Returns
 *   qcclSuccess          The calls without a stream are done, and the others are enqueued.
 *   qcclInvalidUsage     This thread has no group.
 *   the codes of the calls: that of the first one which fails; the sentence says which one it is.
 *   After a failure the others may or may not have been made. Those on streams may be under way:
 *   the caller synchronizes these streams before it reuses or frees the calls' buffers.
 * Threads: any, one at a time in each communicator of the group. Blocks if a call would. */
QCCL_API qcclResult_t qcclGroupEnd(void);

/* ---- Prepared calls --------------------------------------------------------------------------
 * A prepared call is a collective with fixed arguments: they are checked and its plan is made once,
 * and it starts any number of times. On the wire and for other ranks it is the plain call: some
 * ranks may prepare a call that others do not. */
typedef struct qcclColl *qcclColl_t;

/* The numbers of qcclErrorInfo_t::collective. */
typedef int32_t qcclCollective_t;
enum {
    qcclCollAllReduce = 0,
    qcclCollReduceScatter = 1,
    qcclCollAllGather = 2,
    qcclCollBroadcast = 3,
    qcclCollBarrier = 4,
    qcclCollReduce = 7,
    qcclCollGather = 8,
    qcclCollScatter = 9,
    qcclCollAllToAll = 10,
    qcclCollScan = 11,
    qcclCollExscan = 12,
    /* The v-forms, which qcclCollCreateV prepares. */
    qcclCollAllGatherV = 14,
    qcclCollReduceScatterV = 15,
    qcclCollGatherV = 16,
    qcclCollScatterV = 17,
    qcclCollAllToAllV = 18
};

/* Prepares a call. Other ranks take no part.
 *
 * coll_out: receives the prepared call. The caller frees it with qcclCollFree.
 * collective: what the call does. The other arguments are those of its function; `op` and `root`
 *   are not read where it has none, and a barrier reads `comm`, `stream` and `config` alone.
 * send, recv: memory that the call uses whenever it runs. It must stay what it is, and of the
 *   communicator's device, until qcclCollFree.
 * stream: what the call names whenever it starts.
 * config: read only during this function; the codec that it names may be destroyed afterwards.
 * Returns
 *   entry errors
 *   qcclInvalidArgument, qcclInvalidUsage: what the collective's function returns for the
 *   arguments; qcclInvalidArgument also if coll_out is NULL, or collective is unknown or a v-form.
 * Threads: one at a time in `comm`. Does not block. */
QCCL_API qcclResult_t qcclCollCreate(qcclColl_t *coll_out, qcclCollective_t collective,
                                     const void *send, void *recv, size_t count,
                                     qcclDataType_t type, qcclRedOp_t op, int root,
                                     qcclComm_t comm, qcclStream_t stream,
                                     const qcclCollConfig_t *config);
/* Prepares a v-form, as qcclCollCreate prepares another collective.
 *
 * collective: one of the v-forms.
 * send_counts, send_displs, recv_counts, recv_displs: the counts and displs of the v-form's
 *   function, under the name of the buffer to which they belong; read only during this function.
 *   The send_count of qcclGatherV is send_counts[0], and the recv_count of qcclScatterV is
 *   recv_counts[0]. Those that the function does not have are not read.
 * The other arguments are those of qcclCollCreate.
 * Returns what qcclCollCreate returns; qcclInvalidArgument also if collective is no v-form.
 * Threads: one at a time in `comm`. Does not block. */
QCCL_API qcclResult_t qcclCollCreateV(qcclColl_t *coll_out, qcclCollective_t collective,
                                      const void *send, const size_t send_counts[],
                                      const size_t send_displs[], void *recv,
                                      const size_t recv_counts[], const size_t recv_displs[],
                                      qcclDataType_t type, qcclRedOp_t op, int root,
                                      qcclComm_t comm, qcclStream_t stream,
                                      const qcclCollConfig_t *config);
/* Makes the call, as its function would.
 *
 * coll: must not be NULL.
 * Returns
 *   handle errors        also if its communicator or its stream has ended
 *   the other codes of the collective's function
 * Threads: one at a time in the call's communicator. Blocks as the collective's function does. */
QCCL_API qcclResult_t qcclCollStart(qcclColl_t coll);
/* Frees a prepared call, also after its communicator has ended. Calls that a stream still holds are
 * not affected.
 *
 * coll: NULL does nothing.
 * Returns
 *   handle errors, resource errors
 *   qcclInvalidUsage     also while another thread is inside the call's communicator.
 * Threads: one at a time in the call's communicator. Does not block. */
QCCL_API qcclResult_t qcclCollFree(qcclColl_t coll);

/* ---- Operations of the program ----------------------------------------------------------------
 * Operations are numbers from 1024, and a process gives each number once. They are local: every
 * rank makes its own, and ranks may have different numbers for the same operation. A process may
 * have 4096 at a time. */

/* A function that combines values: for each i below count, it replaces accumulator[i] by
 * accumulator[i] op values[i]. The accumulator holds what lower ranks have contributed, `values`
 * what the ranks after them have. The function writes to nothing else.
 *
 * An operation that commutes is associative, too. The function is called any number of times for a
 * collective, each time on some of its values, so it must treat every value by itself. count is
 * never 0. Both pointers are aligned for the type if the buffers of all ranks are.
 *
 * It runs on the thread that makes the call, or on the thread of the call's stream; in calls on
 * several communicators at once on several threads at the same time. It returns 0. Any other
 * number, or an exception that it throws, fails the communicator (qcclSystemError); the error's
 * sentence has the number or the exception's text. It must not use the communicator of the call: a
 * collective there is refused with qcclInvalidUsage. */
typedef int (*qcclRedOpFunction_t)(void *accumulator, const void *values, size_t count,
                                   qcclDataType_t type, void *context);
/* Makes an operation of a function. Calls of collectives that reduce take it for every type, on
 * communicators whose device is the host. The library does not look into the values: no codec
 * encodes them, and a codec that a call names is refused. All ranks of a call pass operations that
 * commute, or all pass operations that do not (qcclMismatch).
 *
 * op_out: receives the operation. The caller destroys it with qcclRedOpDestroy.
 * function: not NULL. It stays valid as long as calls with the operation run.
 * commutes: 1 if operands may be swapped, else 0. With 0 a result is ((x0 op x1) op x2) ..., where
 *   x0, x1, x2 are the values of ranks 0, 1, 2. Only some algorithms do that; a call that names
 *   another one is refused (qcclInvalidArgument). With 1 the algorithm decides order and brackets.
 * context: passed to the function unchanged. It lives as long as the function may be called.
 * Returns
 *   qcclInvalidArgument  op_out or function is NULL, or commutes is neither 0 nor 1. The caller
 *                        corrects it and calls again.
 *   resource errors      qcclSystemError also if there are 4096 operations.
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclRedOpCreate(qcclRedOp_t *op_out, qcclRedOpFunction_t function,
                                      int commutes, void *context);
/* Where the scalar of qcclRedOpCreatePreMulSum lies. */
typedef int32_t qcclScalarResidence_t;
enum {
    qcclScalarDevice = 0,       /* memory of the communicator's device; read when a call runs */
    qcclScalarHostImmediate = 1 /* memory of the host; read when the operation is made */
};
/* Makes an operation that sums the products of each rank's values and of that rank's scalar. Ranks
 * may have different scalars. A product is rounded to the type before it is added, and the sum is
 * that of qcclSum: results have the bits of a qcclSum of values that the caller has multiplied.
 * Codecs encode the products of floats. The products of complex numbers are not encoded.
 *
 * op_out: receives the operation. The caller destroys it with qcclRedOpDestroy.
 * scalar: one value of `type`, not NULL. With qcclScalarDevice it stays as it is until all calls
 *   with the operation are done.
 * type: numbers or complex numbers, as for qcclSum. Calls with the operation have the same type
 *   (qcclInvalidArgument).
 * residence: qcclScalarDevice or qcclScalarHostImmediate.
 * comm: the communicator whose device holds the scalar. The operation also serves other
 *   communicators of the same device, and with qcclScalarHostImmediate every communicator.
 * Returns
 *   handle errors        of comm
 *   qcclInvalidArgument  op_out or scalar is NULL, the type is unknown or has no sum, the residence
 *                        is unknown, or the scalar does not lie on the communicator's GPU. The
 *                        caller corrects it and calls again.
 *   resource errors      qcclSystemError also if there are 4096 operations.
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclRedOpCreatePreMulSum(qcclRedOp_t *op_out, const void *scalar,
                                               qcclDataType_t type,
                                               qcclScalarResidence_t residence, qcclComm_t comm);
/* Ends an operation. Calls that have been made, also on streams and as prepared calls, keep it: the
 * function may be called until they are done or freed.
 *
 * op: an operation that this process has made.
 * Returns
 *   qcclInvalidArgument  No function has made the operation.
 *   qcclInvalidUsage     It has ended already.
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclRedOpDestroy(qcclRedOp_t op);

/* ---- Codecs ----------------------------------------------------------------------------------
 * A spec string names a codec: none fp16 bf16 fp8e4m3 fp8e5m2 int12 int10 int8 int6 int5 int4 int3
 * int2 minmax mxfp8e4m3 mxfp6e2m3 mxfp4 nvfp4 onebit terngrad topk norm dgc dummy lossless tbq
 * bound graddrop exact shared, then ":key=value,..." (block, bits, bucket, round, seed, min,
 * skip_incomplete, scale, norm, levels, clip, ratio, momentum, warmup, entropy, rotate, threshold,
 * abs, rel, pw, guard, owner). A wrong spec is refused (qcclInvalidArgument), and the sentence says
 * what is possible.
 * Codecs are immutable: any thread may use one, in any communicator.
 *
 * A codec may round a value to beyond the largest number of qcclFloat16 or qcclBfloat16, which the
 * result then holds as an infinity: "int8" and the other codecs with a scale of their own do where
 * a value is within their error of that number, "shared" also in qcclFloat32. What a cast or
 * "bound" has encoded decodes to the largest number instead. A sum of decoded values that is too
 * large is an infinity with any codec, like a sum without one.
 *
 * "bound:abs=E" changes no value by more than E at each encode, and "bound:rel=E" by no more than E
 * times the range of the values that are encoded together; "bound:pw=E" changes no value by more
 * than E times itself. A sum has at most as many such errors as there are encodes on its way.
 * Between hosts, and in containers, blocks of 32 values take the bits that their largest multiple
 * of the step needs, or with pw their range of magnitudes.
 *
 * "block=32" (to 512) gives the values of a block of fp8e4m3 and fp8e5m2 a scale, so that values of
 * any size keep the format's precision. Without the key they are casts, which have none.
 *
 * "exact" loses nothing: sums and averages of floating point are rounded once, by the algorithms
 * direct and oneshot (with two ranks by any), with GPUs for up to 27 ranks. "tbq" sends its
 * threshold with a value's sign, or nothing, and needs a state, which keeps the rest.
 * "graddrop" is another name of "topk:ratio=0.01", for calls with a state.
 * "rotate=128" mixes so many values before they are encoded.
 *
 * "shared:bits=4,block=32" serves sums and averages in all-reduce, reduce and reduce-scatter, on
 * hosts. The ranks agree on the scale of every block of values, and then sum integers, which loses
 * nothing: so the bits of a result depend on the values of the ranks alone, not on algorithm, order
 * or cut. A call counts as two, each with `timeout`. If it fails, the result may hold integers, in
 * place also the input. It takes no v-form and no stride.
 *
 * "entropy=1" entropy codes what the codec has made of the values, which loses nothing more, and
 * "lossless" does so with the exponents of the values themselves. How many bytes result depends on
 * the values; they are never more than without it. Collectives whose ranks are all on one host do
 * without the entropy coding, which would cost more time than it saves there.
 *
 * "auto" names a budget instead of a codec, and every call chooses its codec by the budget.
 * - "auto:nmse=1e-3": the fastest codec that keeps this NMSE of the result. It is none, unless a
 *   codec between hosts is expected to make the call 1.25 times as fast. With "min=0" a codec may
 *   be chosen anywhere.
 * - "auto:bits=4.5": the most accurate codec that takes at most so many bits a value.
 * - Both may be given together, and also a choice of codecs, "from=int+minmax+nvfp4+bf16".
 * - If no codec keeps the budget, calls go lossless, and rank 0 warns once.
 *
 * "guard=nmse:1e-2" makes the library look at samples of the values of calls.
 * - If the samples of one rank show that the result would lose more than this NMSE, calls of the
 *   same shape and tag go lossless on all ranks, from the next call on. They use the codec again
 *   when 16 or more samples in a row keep half of this NMSE. Rank 0 warns of the first time.
 * - All ranks give such a call the same tag. If two ranks' tags differ, qcclMismatch names them.
 * - Calls that a graph makes again are guarded like other calls.
 *
 * "owner" says what a rank has in its own result of the values that it gives to all ranks: its
 * block in qcclAllGather and qcclAllGatherV, the vector of the root in qcclBroadcast.
 * - "owner=decoded", which is usual: what the other ranks decode, so that all have the same bytes.
 * - "owner=exact": its values as they are. The other ranks have the same bytes as without the key.
 *   In place the rank's own values are not written.
 * - All ranks of a call name the same; if they do not, qcclMismatch names both codecs.
 * - Other collectives refuse a codec with "owner=exact" (qcclInvalidArgument), and so do the places
 *   whose codecs serve reductions alone: qcclConfig_t, QCCL_CODEC and plan files.
 *
 * "auto", "guard" and "owner" are only for collectives. Of the functions below, all but
 * qcclCodecCreate, qcclCodecDestroy and qcclCodecGetSpec refuse a codec with "auto", "guard" or
 * "owner=exact" (qcclInvalidArgument). */

/* Makes a codec.
 *
 * codec_out: receives the codec. The caller destroys it with qcclCodecDestroy.
 * spec: a spec string, not NULL. The function copies it.
 * Returns
 *   qcclInvalidArgument  codec_out or spec is NULL, the spec is not valid, or a setting (a QCCL_
 *                        variable) cannot be read. The caller corrects it and calls again.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclCodecCreate(qcclCodec_t *codec_out, const char *spec);
/* Ends a codec. Calls that have been made, also on streams, keep their own copy.
 *
 * codec: NULL does nothing.
 * Returns
 *   handle errors, resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclCodecDestroy(qcclCodec_t codec);
/* Gives the shortest spec that makes the same codec.
 *
 * codec: must not be NULL.
 * buffer, bytes: as for qcclExplain.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  bytes is NULL, or the buffer is too small. The caller calls again with a
 *                        buffer of *bytes bytes.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclCodecGetSpec(qcclCodec_t codec, char *buffer, size_t *bytes);
/* Gives the number of bytes that qcclCodecEncode needs at most.
 *
 * codec: must not be NULL.
 * count: number of values.
 * type: of the values.
 * bytes_out: receives the number, which includes the header of the container. A codec with
 *   "entropy=1", "lossless", "bound" and "tbq" may need less; all others need exactly so many.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  The codec does not encode this type, or has "auto", "guard" or
 *                        "owner=exact"; the type is unknown; memory cannot hold so many values; or
 *                        bytes_out is NULL.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclCodecMaxEncodedBytes(qcclCodec_t codec, size_t count, qcclDataType_t type,
                                               size_t *bytes_out);
/* Encodes values into a container, which says what it holds and carries a CRC32C.
 *
 * codec: must not be NULL.
 * src: `count` values of `type`, in memory of the host. It may be NULL if count is 0.
 * dst: `capacity` bytes of memory of the host, which do not overlap src. capacity is at least what
 *   qcclCodecMaxEncodedBytes gives.
 * written_out: receives the number of bytes of the container. It is set when the call returns, also
 *   with a stream. So on a stream a codec with "entropy=1", "lossless", "bound" or "tbq"
 *   writes the container without packing, which has as many bytes as qcclCodecMaxEncodedBytes
 *   gives.
 * stream: a stream from qcclStreamCreate, which uses src and dst until it has come past the call;
 *   or NULL or QCCL_STREAM_SYNC: the call returns when it is done.
 * Returns
 *   handle errors        of codec and stream
 *   qcclInvalidArgument  as for qcclCodecMaxEncodedBytes; or src, dst or written_out is NULL,
 *                        capacity is too small, or src and dst overlap. The caller corrects it.
 *   resource errors
 * Threads: any. Without a stream it blocks while it encodes. */
QCCL_API qcclResult_t qcclCodecEncode(qcclCodec_t codec, const void *src, size_t count,
                                      qcclDataType_t type, void *dst, size_t capacity,
                                      size_t *written_out, qcclStream_t stream);
/* Decodes a container that qcclCodecEncode wrote.
 *
 * codec, type, count: must be those of the encoding.
 * src: the `bytes` bytes of the container, as many as written_out said, in memory of the host.
 * dst: memory of the host for `count` values of `type`, which does not overlap src. It may be NULL
 *   if count is 0.
 * stream: as for qcclCodecEncode.
 * Returns
 *   handle errors        of codec and stream
 *   qcclInvalidArgument  as for qcclCodecMaxEncodedBytes; or src or dst is NULL, or they overlap.
 *   qcclDamagedData      The bytes are not a whole, intact container of this codec, type and count;
 *                        dst is undefined. The caller gets the bytes again. With a stream,
 *                        qcclStreamSynchronize or qcclStreamQuery returns this code.
 *   resource errors
 * Threads: any. Without a stream it blocks while it decodes. */
QCCL_API qcclResult_t qcclCodecDecode(qcclCodec_t codec, const void *src, size_t bytes, void *dst,
                                      size_t count, qcclDataType_t type, qcclStream_t stream);

/* ---- Codecs of layers -------------------------------------------------------------------------
 * A layer is a tensor of a model that a training sums in every step, such as the gradients of one
 * weight. Layers differ in how much a codec loses of them. Layer codecs are a choice of a codec for
 * each layer: all layers together take the fewest bits, and lose no more than they would with one
 * codec for all of them, the uniform codec. What counts is the sum of the squared errors of one
 * encode over all values of all layers.
 *
 * A training notes values of its layers in some steps (qcclLayerCodecsNote), lets the library
 * decide now and then (qcclLayerCodecsDecide), and names the codec of each layer
 * (qcclLayerCodecsGet) in the config of its calls.
 *
 * The choice is that of L-GreCo (Markov et al., MLSys 2024): a dynamic program over the error, in
 * 10,000 steps of the budget. Unlike there, the errors of several steps are averaged, not the
 * values. */

typedef struct qcclLayerCodecs *qcclLayerCodecs_t;

/* Makes layer codecs. Before the first decision each layer has the uniform codec.
 *
 * layers_out: receives the object. The caller destroys it with qcclLayerCodecsDestroy.
 * counts: the number of values of each layer, nlayers of them; the function copies them.
 * nlayers: 1 to 16384.
 * type: of all values: floating point, or complex, whose parts are measured as floats.
 * uniform: the spec of the codec whose error is the budget; NULL: int4.
 * candidates: the specs of the codecs to choose from, separated by commas, as in
 *   "int3,int4:block=64,none"; at most 256 with the uniform codec, which always is one. NULL: int2
 *   to int8 in blocks of several lengths, and none. Codecs with "entropy=1", "lossless",
 *   "bound" and "tbq" count with the bits that noted values take between hosts, packed.
 * Returns
 *   qcclInvalidArgument  layers_out or counts is NULL; nlayers or a count is out of range; the type
 *                        is unknown; a spec is not valid, has "auto", "guard" or "owner=exact", or
 *                        does not encode sums of the type; or a setting (a QCCL_ variable) cannot
 *                        be read. The caller corrects it and calls again.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclLayerCodecsCreate(qcclLayerCodecs_t *layers_out, const size_t counts[],
                                            size_t nlayers, qcclDataType_t type,
                                            const char *uniform, const char *candidates);
/* Measures what each candidate loses of a layer's values, which takes as long as to encode and
 * decode them with each. Notes of one layer are averaged until the next decision. Values of which
 * one is not finite, or whose squares have a sum beyond fp64, are not counted.
 *
 * layers: must not be NULL.
 * layer: 0 to nlayers - 1.
 * values: the values of the layer, in memory of the host. They may be NULL if its count is 0.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  layer is out of range, or values is NULL.
 *   resource errors
 * Threads: any; threads that note for one object wait for each other. */
QCCL_API qcclResult_t qcclLayerCodecsNote(qcclLayerCodecs_t layers, size_t layer,
                                          const void *values);
/* Chooses the codec of each layer by the notes since the decision before, and forgets these notes.
 * What is noted while the function waits for other ranks is for the next decision. A layer without
 * notes gets the uniform codec.
 *
 * layers: must not be NULL.
 * comm: the ranks that get the same choice, which is made by the notes of rank 0; those of the
 *   other ranks are forgotten. All ranks of comm make this call, in the same order as their
 *   collectives, with objects of equal layers, type, uniform codec and candidates; among these
 *   calls it is an all-gather. NULL: no other rank takes the choice.
 * Returns
 *   handle errors        of layers and comm
 *   qcclMismatch         Another rank's layers or candidates differ from those of rank 0.
 *   failures, resource errors
 *   After an error the choice and the notes are as before.
 * Threads: one at a time for each communicator. With comm it blocks until all ranks have called. */
QCCL_API qcclResult_t qcclLayerCodecsDecide(qcclLayerCodecs_t layers, qcclComm_t comm);
/* Gives the codec of a layer.
 *
 * layers: must not be NULL.
 * layer: 0 to nlayers - 1.
 * codec_out: receives the codec. It belongs to the object, lasts as long, and is not destroyed by
 *   the caller. A later decision may give the layer another one.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  layer is out of range, or codec_out is NULL.
 * Threads: any. Does not block for long. */
QCCL_API qcclResult_t qcclLayerCodecsGet(qcclLayerCodecs_t layers, size_t layer,
                                         qcclCodec_t *codec_out);
/* Describes the latest choice as text: a line for each layer, with its codec and the bits of a
 * value on the wire, and a line for all of them beside the uniform codec.
 *
 * layers: must not be NULL.
 * buffer, bytes: as for qcclExplain.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  bytes is NULL, or the buffer is too small. The caller calls again with a
 *                        buffer of *bytes bytes.
 *   resource errors
 * Threads: any. Does not block for long. */
QCCL_API qcclResult_t qcclLayerCodecsDescribe(qcclLayerCodecs_t layers, char *buffer,
                                              size_t *bytes);
/* Ends layer codecs, and with them the codecs that they gave. Calls that have been made, also on
 * streams, keep their own copy.
 *
 * layers: NULL does nothing.
 * Returns
 *   handle errors
 * Threads: any. Does not block for long. */
QCCL_API qcclResult_t qcclLayerCodecsDestroy(qcclLayerCodecs_t layers);

/* ---- States -----------------------------------------------------------------------------------
 *
 * A state makes good in the next call what a lossy codec loses in this one (error feedback). Sums
 * of gradients over many steps then are those of lossless calls, up to what the ranks still owe, so
 * that coarse codecs (onebit, terngrad, topk, dgc, int2) train models.
 *
 * A state belongs to one tensor of one rank: what the rank gives to an all-reduce or a reduce, or
 * all blocks that it gives to a reduce-scatter. It holds a residual for each element, a seed, and
 * the number of its calls. A call that names it in qcclCollConfig_t adds the residual to the values
 * of `send`, which stay as they are, and runs on these sums. What the encodes of this rank lose
 * becomes the new residual. Where a call runs without a codec, the residual is added, and none is
 * left. WIRE.md, "State", defines every bit.
 *
 * The codec dgc has a momentum m, and its state holds a velocity u for each element besides the
 * residual v. A call with the value g makes u = m u + g and v = v + u, and sums up the v. Where it
 * sends an element, u becomes zero, and v what is lost. This is the momentum correction with factor
 * masking of Deep Gradient Compression (Lin, Han, Mao, Wang and Dally, ICLR 2018). So programs use
 * dgc with a plain optimiser that has no momentum of its own. With the key warmup=W the first W
 * calls of a state keep more values, from a quarter on. Without a state dgc is topk.
 *
 * - All ranks of a call name a state, or none does, and all states have the same momentum
 *   (qcclMismatch). So have their numbers of calls during a warm-up, unless they keep equally many
 *   values. With the codec "shared" each rank may name a state, whatever the others do.
 * - A call that is refused or fails leaves the state as it was. After a failure, ranks that had
 *   finished the call are one call ahead of the others. With stochastic rounding the numbers of
 *   calls and the seeds of all ranks have to be equal (qcclMismatch): qcclStateLoad or
 *   qcclStateReset makes them so.
 * - The noise of a call is drawn from the state's seed and number of calls. A job that loads what
 *   it has saved goes on with the bits of one that was not interrupted.
 * - After qcclCommShrink a rank saves its state and loads it into one of the new communicator. The
 *   errors of ranks that have died are lost.
 * - One call at a time uses a state. A call keeps its state until it has ended, on a stream too,
 *   also if the state is destroyed meanwhile. A prepared call keeps it until it is freed.
 * - A call with a state runs by itself in a group. The group may name a state once.
 * - Refused (qcclInvalidArgument) are other collectives, v-forms, a stride and other operations; a
 *   state of another type, count or momentum, or made for another rank, another number of ranks or
 *   another device. Refused with qcclInvalidUsage is a state that a call uses which has not ended.
 * - On a stream of a GPU a call takes the state when the stream has come to it. So calls that
 *   follow one another there may name the same state, and a graph may repeat them. If something
 *   else uses the state then, the communicator fails (qcclInvalidUsage). The caller waits for the
 *   stream before it saves, loads or resets the state.
 * - A guard samples the values of `send`, without the residual. */

/* Whose errors a state keeps: those of a rank's own values and of sums that are not complete, and
 * those of the complete sums that it encodes for all ranks. */
typedef int32_t qcclFeedback_t;
enum {
    qcclFeedbackAll = 0,  /* both */
    qcclFeedbackFirst = 1 /* the first alone */
};

/* The settings of a state. */
typedef struct {
    size_t size;             /* these three: set by QCCL_STATE_CONFIG_INIT and qcclConfigInit */
    uint32_t magic;
    uint32_t version;
    uint64_t seed;           /* of rounding with noise; equal on all ranks. It takes the place of
                              * the codec's */
    qcclFeedback_t feedback; /* default: qcclFeedbackAll */
    float momentum;          /* of the codec of the state's calls, as its key momentum has it: 0.9
                              * for dgc without that key; 0, the default, for all other codecs */
    uint32_t reserved[8];
} qcclStateConfig_t;

#define QCCL_STATE_CONFIG_INIT                                                                     \
    {sizeof(qcclStateConfig_t), QCCL_CONFIG_MAGIC, QCCL_VERSION, 0, qcclFeedbackAll, 0, {0}}

/* Makes a state whose residual is zero. It takes 8 bytes for each element (16 for qcclFloat64 and
 * qcclComplex64, 32 for qcclComplex128; twice as many with momentum) until it is destroyed. The
 * communicator of its calls keeps as much as a residual, as the call with the most elements needs
 * it: 4, 8 or 16 bytes for each element.
 *
 * state_out: receives the state. The caller destroys it with qcclStateDestroy.
 * comm: whose calls use the state. The state lies on its device, and keeps this rank's number and
 *   the number of ranks. It may outlive the communicator, and may be used on another one in which
 *   all of these are the same.
 * count: elements of the tensor; of a reduce-scatter, of the blocks of all ranks together.
 * type: of the elements: a floating or a complex type.
 * config: NULL stands for the defaults. The library keeps no reference to it.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  state_out is NULL, memory cannot hold so many elements, the type has no
 *                        codecs, or config is wrong.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclStateCreate(qcclState_t *state_out, qcclComm_t comm, size_t count,
                                      qcclDataType_t type, const qcclStateConfig_t *config);
/* Gives the number of bytes that qcclStateSave writes.
 *
 * state: must not be NULL.
 * bytes_out: receives the number, which never changes.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  bytes_out is NULL.
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclStateBytes(qcclState_t state, size_t *bytes_out);
/* Writes the state in a form that any machine reads. It says what it holds and carries a CRC32C.
 *
 * state: must not be NULL.
 * buffer: `bytes` bytes of memory of the host, at least as many as qcclStateBytes gives. Further
 *   bytes stay as they are.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  buffer is NULL, or bytes is too small.
 *   qcclInvalidUsage     also if a call uses the state, or another thread saves, loads or resets
 *                        it. The caller waits for that and calls again.
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclStateSave(qcclState_t state, void *buffer, size_t bytes);
/* Takes residual, velocity, seed and number of calls from what qcclStateSave wrote. After an error
 * the state is as it was.
 *
 * state: must not be NULL.
 * buffer: `bytes` bytes of memory of the host, exactly those that were saved.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  buffer is NULL, or it holds the state of another tensor (type or count),
 *                        with other feedback or momentum, or of another rank of as many ranks.
 *                        What ranks of a communicator with another number of ranks have saved is
 *                        taken.
 *   qcclInvalidUsage     as for qcclStateSave
 *   qcclDamagedData      The bytes are not a whole, intact state. The caller gets them again.
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclStateLoad(qcclState_t state, const void *buffer, size_t bytes);
/* Makes the residual, the velocity and the number of calls zero. The seed stays.
 *
 * state: must not be NULL.
 * Returns
 *   handle errors
 *   qcclInvalidUsage     as for qcclStateSave
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclStateReset(qcclState_t state);
/* Ends a state. Calls that have been made or prepared keep it until they have ended or are freed.
 *
 * state: NULL does nothing.
 * Returns
 *   handle errors, resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclStateDestroy(qcclState_t state);

/* ---- Host streams ---------------------------------------------------------------------------- */

/* Makes a stream of the host: a queue with a thread of its own. The calls on one communicator
 * happen in the order in which they were made, whatever streams they name. The stream keeps the
 * first error of its calls until qcclStreamSynchronize or qcclStreamQuery returns it, or a request
 * takes it.
 *
 * stream_out: receives the stream. The caller destroys it with qcclStreamDestroy.
 * Returns
 *   qcclInvalidArgument  stream_out is NULL, a setting (a QCCL_ variable) cannot be read, or the
 *                        process cannot run on the CPU of QCCL_PROGRESS_CPU.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclStreamCreate(qcclStream_t *stream_out);
/* Waits for the work that was enqueued, and for other threads' calls with the stream, and then
 * frees the stream. An error that the stream still keeps is dropped.
 *
 * stream: from qcclStreamCreate. NULL does nothing.
 * Returns
 *   handle errors        qcclInvalidArgument also for QCCL_STREAM_SYNC.
 *   qcclInvalidUsage     also on the stream's own thread (in an idle or log function).
 *   resource errors
 * Threads: any but the stream's own. Blocks until the stream's work is done. */
QCCL_API qcclResult_t qcclStreamDestroy(qcclStream_t stream);
/* Waits until the queue is empty.
 *
 * stream: from qcclStreamCreate, not NULL.
 * Returns
 *   qcclSuccess          All work is done, without an error since the last call that returned one.
 *   handle errors
 *   qcclInvalidUsage     also on the stream's own thread (in an idle or log function).
 *   failures             of collectives on the stream, and qcclDamagedData of qcclCodecDecode: the
 *                        first error of the stream's work since the last one that was returned. It
 *                        is returned once. The stream stays usable.
 *   resource errors
 * Threads: any but the stream's own. Blocks. */
QCCL_API qcclResult_t qcclStreamSynchronize(qcclStream_t stream);
/* Asks whether the queue is empty.
 *
 * stream: from qcclStreamCreate, not NULL.
 * Returns
 *   qcclSuccess          The queue is empty.
 *   qcclInProgress       Work is left. The caller asks again later.
 *   handle errors
 *   failures             and qcclDamagedData, as for qcclStreamSynchronize, also while work is
 *                        left.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclStreamQuery(qcclStream_t stream);

/* ---- Requests --------------------------------------------------------------------------------
 * A request is a point in a host stream. It is done when everything that was put into the stream
 * before that point is done. So a call on a stream and a request behind it are what a nonblocking
 * call of MPI is:
 *
 *     qcclAllReduce(send, recv, count, qcclFloat32, qcclSum, comm, stream);
 *     qcclRequestRecord(stream, &request);
 *     ...                                     // what needs no result
 *     qcclWait(&request);
 *
 * - Errors. A request takes the first error of the calls before it that neither an earlier request
 *   of the stream has taken nor qcclStreamSynchronize or qcclStreamQuery has returned. So each
 *   error comes once. The function that finds the request done returns the error; its own refusals
 *   leave the request as it was.
 * - End. A request ends when a function returns that it is done, with or without an error. That
 *   function sets the caller's variable to NULL. A request that is NULL counts as done and has no
 *   error. Requests outlive their stream: qcclStreamDestroy waits for the work, and they are done.
 * - Streams hold the order of calls. Requests of one stream are done one after the other, and those
 *   of different streams in any order, except that calls on one communicator follow one another.
 *   Calls of an open group are put into the stream at the group's end.
 * - Requests have no thread of their own. The calls go on whether or not the program waits.
 * Streams of a GPU have events of the vendor's runtime instead. */
typedef struct qcclRequest *qcclRequest_t;

/* Makes a request for all that has been put into the stream so far.
 *
 * stream: from qcclStreamCreate, not NULL.
 * request_out: receives the request, which is done already if the stream's queue is empty. The
 *   caller ends it with one of the functions below.
 * Returns
 *   handle errors        qcclInvalidArgument also for QCCL_STREAM_SYNC.
 *   qcclInvalidArgument  request_out is NULL.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclRequestRecord(qcclStream_t stream, qcclRequest_t *request_out);
/* Asks whether a request is done, and ends it if it is.
 *
 * request: not NULL. Set to NULL if the request has ended.
 * is_done: receives 1 if the request is done, else 0. Set to 1 also if the function returns the
 *   error that the request carries.
 * Returns
 *   qcclSuccess          Also while the request is not done.
 *   handle errors        of *request. Nothing has happened.
 *   qcclInvalidArgument  request or is_done is NULL.
 *   qcclInvalidUsage     also if another thread ends the request at the same time.
 *   failures             of collectives, and qcclDamagedData of qcclCodecDecode: the error that the
 *                        request carries.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclTest(qcclRequest_t *request, int *is_done);
/* Waits until a request is done, and ends it.
 *
 * request: not NULL. Set to NULL when the request has ended.
 * Returns
 *   handle errors        of *request. Nothing has happened.
 *   qcclInvalidArgument  request is NULL.
 *   qcclInvalidUsage     also on the thread of the request's stream (in an idle or log function),
 *                        and if another thread has ended the request meanwhile.
 *   failures             and qcclDamagedData, as for qcclTest.
 *   resource errors
 * Threads: any but the stream's own. Blocks; a call in the stream waits no longer than its
 * `timeout` says. */
QCCL_API qcclResult_t qcclWait(qcclRequest_t *request);
/* Waits until one of several requests is done, and ends that one. If several are done, it is the
 * first of them in the array.
 *
 * count: 0 or more.
 * requests: `count` requests, which may be of different streams. Those that are NULL are left out.
 *   The one that has ended is set to NULL. NULL with a count of 0.
 * index: not NULL. Receives the place of the one that has ended, from 0, also if the function
 *   returns its error; or -1 if there was no request.
 * Returns
 *   qcclSuccess          Also if there was no request.
 *   handle errors        of any of the requests. Nothing has happened; the sentence says which one.
 *   qcclInvalidArgument  index or requests is NULL, or count is less than 0.
 *   qcclInvalidUsage     also on the thread of the stream of a request that is not done (in an idle
 *                        or log function), and if another thread has ended the request meanwhile.
 *   failures             and qcclDamagedData, as for qcclTest.
 *   resource errors
 * Threads: any but the streams' own. Blocks as qcclWait does. */
QCCL_API qcclResult_t qcclWaitAny(int count, qcclRequest_t requests[], int *index);
/* Waits until all of several requests are done, whatever errors they have, and ends all of them.
 *
 * count, requests: as for qcclWaitAny. No request stands in the array twice. All are set to NULL.
 * Returns
 *   qcclSuccess          No request has an error, or there was none.
 *   handle errors        of any of the requests. Nothing has happened; the sentence says which one.
 *   qcclInvalidArgument  requests is NULL, or count is less than 0.
 *   qcclInvalidUsage     also on the thread of the stream of a request that is not done (in an idle
 *                        or log function). Or another thread has ended one of the requests
 *                        meanwhile, or one stands in the array twice; the others have ended.
 *   failures             and qcclDamagedData, as for qcclTest: the error of the first request in
 *                        the array that has one. Errors of others are dropped; a program that needs
 *                        each calls qcclWait for one request after the other.
 *   resource errors
 * Threads: any but the streams' own. Blocks as qcclWait does. */
QCCL_API qcclResult_t qcclWaitAll(int count, qcclRequest_t requests[]);
/* Ends a request without waiting. The calls go on, and use their buffers as before. The error that
 * the request carries, or would carry, is dropped; a communicator that has failed keeps its own.
 *
 * request: NULL does nothing.
 * Returns
 *   handle errors, resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclRequestFree(qcclRequest_t request);

/* ---- Memory ---------------------------------------------------------------------------------- */

/* Allocates memory of the host that other processes can map, for buffers of collectives.
 * Collectives of communicators on the host work with any memory of the host, but only this memory
 * can be registered (qcclCommRegister).
 *
 * pointer_out: receives the address, which is page-aligned. The caller frees the memory with
 *   qcclMemFree.
 * bytes: 1 or more.
 * Returns
 *   qcclInvalidArgument  pointer_out is NULL, or bytes is 0 or more than memory can have.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclMemAlloc(void **pointer_out, size_t bytes);
/* Frees memory of qcclMemAlloc.
 *
 * pointer: the address that qcclMemAlloc gave. NULL does nothing.
 * Returns
 *   qcclInvalidArgument  qcclMemAlloc did not give this pointer, as far as the library can see, or
 *                        it has been freed.
 *   qcclInvalidUsage     The memory is still registered. The caller deregisters it first, or ends
 *                        the communicator.
 *   resource errors      qcclSystemError also if the process cannot look at its memory.
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclMemFree(void *pointer);

/* Lets the other ranks read a block of memory of this rank in place: lossless collectives and
 * messages on large buffers there need no copy for their peers. Registration is optional and local
 * to this rank: some ranks may register memory and others not, as often and for as long as they
 * like. Results are the same bytes in any case. Nothing changes if peers cannot map the memory, and
 * for more than 32 blocks on one communicator. lent_bytes of qcclCommStats_t counts the bytes that
 * peers have read in place. Peers unmap what is deregistered in their next calls: a peer that has
 * received from this rank, when it receives from it again.
 *
 * comm: the call enters it.
 * buffer: an address in memory from qcclMemAlloc. The whole block is registered. The memory stays
 *   the caller's, who may change it whenever no call uses it.
 * bytes: 1 or more; from `buffer` on, so many bytes must lie in the block.
 * handle_out: receives the registration, which is valid until qcclCommDeregister or the end of the
 *   communicator, whichever comes first.
 * Returns
 *   entry errors
 *   qcclInvalidArgument  buffer or handle_out is NULL, bytes is 0, or the bytes do not lie in
 *                        memory from qcclMemAlloc.
 *   qcclInvalidUsage     also while calls are under way on streams. The caller waits for them
 *                        first.
 *   resource errors      qcclSystemError also if the process cannot look at its memory.
 * Threads: one at a time in `comm`, between calls. Does not block. */
QCCL_API qcclResult_t qcclCommRegister(qcclComm_t comm, void *buffer, size_t bytes,
                                       void **handle_out);
/* Ends a registration. Memory that was registered several times is deregistered as often. Peers
 * unmap the memory at one of their next 64 calls (at the first that is not small), or when they end
 * their communicator: memory that is freed before stays in use until then.
 *
 * comm: the communicator of the registration. The call enters it.
 * handle: from qcclCommRegister. NULL does nothing.
 * Returns
 *   entry errors
 *   qcclInvalidArgument  qcclCommRegister did not give this handle.
 *   qcclInvalidUsage     also while calls are under way on streams, for a handle that has been
 *                        deregistered, and for a handle of another communicator.
 *   resource errors
 * Threads: one at a time in `comm`, between calls. Does not block. */
QCCL_API qcclResult_t qcclCommDeregister(qcclComm_t comm, void *handle);

/* ---- Explanations and statistics ------------------------------------------------------------- */

/* Explains what the planner would do with a call, with its reasons, and over which transport.
 *
 * comm: must not be NULL.
 * what: a call in words: "all_reduce bytes=64M type=float op=sum codec=int4". The collective comes
 *   first; it may be a v-form, such as all_to_all_v. These follow in any order, and each has a
 *   default:
 *     bytes=      size of the whole vector; where ranks have blocks, of all ranks' blocks
 *     count=      elements, as the function takes them; not together with bytes=. Of a v-form
 *                 those of a mean part; where a rank knows its own parts alone, both are ignored
 *     type=, op=, root=, codec=, algorithm=
 *     sample=     INPUT/RESULT/RATIO, what is known about the values of a sum: the NMSE of one
 *                 encode of the ranks' vectors, that of one encode of the result, and the sum of
 *                 squares of all ranks' vectors over that of the result (1 for independent ranks).
 *                 Where ranks or parts of the vector are not equally strong, /OWN may follow: the
 *                 part of the ranks' squares that ranks have where they sum themselves, from 0 to
 *                 1. With algorithm=direct that is rank r in part r of the vector, and with tree
 *                 rank 0 everywhere.
 *                 The answer then says which NMSE they lead to, beside the one that is predicted
 *                 for independent values
 *     format=     text, or json: one object with the same and more (`man qccl-info` describes it)
 *   Without codec= and algorithm= the text explains what a call without a config would get. If the
 *   communicator's config or the environment named the codec, the algorithm or the cut, the text
 *   first says which did: "codec int4 by item 2 of QCCL_CODEC, ...". The last line of a text begins
 *   with the chosen algorithm and says why it won.
 * buffer: receives the text, with a closing zero. NULL: the caller only asks for the size.
 * bytes: must not be NULL. Before the call: the size of the buffer. After it: the size of the text,
 *   closing zero included, also if the buffer is too small.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  what or bytes is NULL; `what` is not understood or not possible; or the
 *                        buffer is too small. The caller calls again with a buffer of *bytes bytes.
 *   resource errors
 * Threads: any. Does not wait for other ranks. */
QCCL_API qcclResult_t qcclExplain(qcclComm_t comm, const char *what, char *buffer, size_t *bytes);

/* Sums of what this rank has done since the communicator was made. Times are in nanoseconds of this
 * rank's host. Calls that are small enough for eager slots are not timed; between GPUs that reach
 * each other such calls may be as large as 1 MiB. On a GPU encode_ns is the time that launches
 * take, and copy_ns the time that it takes to find out that they are done; while the host waits for
 * the kernels, the time counts as wait_ns. */
typedef struct {
    size_t size;         /* the caller sets it to sizeof(qcclCommStats_t) before the call */
    uint64_t calls;
    uint64_t raw_bytes;  /* of the calls' vectors, unencoded */
    uint64_t wire_bytes; /* that this rank sent, headers included */
    uint64_t encode_ns;
    uint64_t copy_ns;    /* decode, reduce and copy */
    uint64_t wait_ns;
    uint64_t wire_ns;    /* sending and receiving messages */
    uint64_t lent_bytes; /* of wire_bytes: read by other ranks in registered memory of this rank */
    uint64_t network_ns; /* of wait_ns and wire_ns: work of the network between hosts. Over sockets
                          * that is the system's TCP, as far as it works for this rank's calls */
    uint64_t device_bytes; /* read and written by kernels on this rank's GPU */
    uint64_t guarded_calls; /* that went lossless because of their codec's guard */
    uint64_t reserved[4];
} qcclCommStats_t;
/* Gives the sums of the communicator so far.
 *
 * comm: must not be NULL.
 * stats_out: its `size` must be set. Receives the sums.
 * Returns
 *   handle errors
 *   qcclInvalidArgument  stats_out is NULL, or its `size` is not possible. The caller sets `size`.
 *   resource errors
 * Threads: any. Does not block. */
QCCL_API qcclResult_t qcclCommGetStats(qcclComm_t comm, qcclCommStats_t *stats_out);

#ifdef __cplusplus
}
#endif

#endif
