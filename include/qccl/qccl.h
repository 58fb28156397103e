/* QCCL: collective communication with compression built in.
 *
 * A communicator joins `nranks` ranks (processes or threads). Every rank calls the same collectives
 * in the same order; each call moves encoded bytes, and all ranks end with identical bytes.
 * Lossless is the default: a codec changes values only where the call, the communicator or the
 * environment (in this precedence) names one.
 *
 *     qcclUniqueId id;                        // made by one rank, brought to all others
 *     qcclComm_t comm;
 *     qcclCommInitRank(&comm, nranks, &id, rank);
 *     qcclAllReduce(gradient, gradient, count, qcclFloat32, qcclSum, comm, NULL);
 *     qcclCommDestroy(comm);
 *
 * Rules for every function here, unless its comment says otherwise:
 * - It returns qcclSuccess or says what went wrong; qcclGetLastError gives the sentence.
 * - Handles and scalars are written only on success. A call that is refused for its arguments
 *   touches nothing, consumes no call number and leaves the communicator usable. (What one rank's
 *   qcclCommInit... refuses fails on all ranks; whom qcclCommSplit or qcclCommShrink refuses is
 *   waited for, and its right call completes those of the others.)
 * - A failed collective leaves its receive buffer undefined and its communicator failed: every
 *   later collective returns the same error, qcclCommDestroy and qcclCommAbort still work.
 * - One thread at a time in one communicator; different communicators are independent.
 * - Handles (qcclComm_t, qcclCodec_t, streams from qcclStreamCreate, registrations) are numbers
 *   that a process gives once, not addresses. A call with a handle that has been destroyed, aborted
 *   or deregistered is refused with qcclInvalidUsage for the life of the process, and so is a call
 *   that races with the end and comes too late; a call that came in time finishes first, except
 *   that qcclCommDestroy is refused while another thread is inside. Where several threads end a
 *   handle at once, one of them ends it and the others get qcclInvalidUsage. A value that never was
 *   a handle is refused with qcclInvalidArgument and not followed (on a communicator of a GPU,
 *   streams are the vendor's, whose runtime does follow them). A forked child is refused its
 *   parent's communicators and streams with qcclInvalidUsage, and may use and destroy its codecs.
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
 * Numbers are NCCL's where NCCL has one, and are never reused. The types are int32_t because the
 * width of a C enum is not part of an ABI. */

typedef int32_t qcclResult_t;
enum {
    qcclSuccess = 0,
    qcclUnhandledDeviceError = 1, /* the device's runtime failed */
    qcclSystemError = 2,          /* the operating system refused something */
    qcclInternalError = 3,        /* a mistake in QCCL itself */
    qcclInvalidArgument = 4,      /* an argument is not valid; the communicator stays usable */
    qcclInvalidUsage = 5,         /* not allowed here: a second thread, a forked child, a handle
                                   * that has ended, ... */
    qcclRemoteError = 6,          /* another rank failed */
    qcclInProgress = 7,           /* still running */
    qcclTimeout = 8,              /* a live rank did not come in time */
    qcclMismatch = 64,            /* ranks disagree about a call */
    qcclPeerLost = 65,            /* a rank died or left */
    qcclRevoked = 66,             /* a rank called qcclCommRevoke or qcclCommAbort */
    qcclDamagedData = 67          /* encoded bytes that no encoder writes */
};

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
    qcclFloat8e5m2 = 11  /* OCP, on every device */
};

/* Sums of 8, 16 and 32 bit floats are formed in fp32, of fp64 in fp64, of integers in their own
 * type (wrapping), and are rounded once. qcclAvg divides by the number of ranks after the last
 * addition (integers truncate toward zero). For qcclMin and qcclMax any NaN gives NaN; -0 < +0. */
typedef int32_t qcclRedOp_t;
enum { qcclSum = 0, qcclProd = 1, qcclMax = 2, qcclMin = 3, qcclAvg = 4 };

/* Numbers that look like pointers and are none: to be compared and passed on only. */
typedef struct qcclComm *qcclComm_t;
typedef struct qcclCodec *qcclCodec_t;

/* A stream in which work is done in order. On a host communicator NULL and QCCL_STREAM_SYNC both
 * mean: return when the work is done. Otherwise a stream from qcclStreamCreate: the call returns at
 * once, and its buffers stay in use until the stream has come past it.
 *
 * On a communicator of a GPU it is a stream of that GPU, as the vendor's runtime gives it (a
 * cudaStream_t), NULL its (legacy) default stream: the call returns at once, is done when the
 * stream has come to it, and the stream goes on when it is done, also where it has failed: then
 * qcclCommGetAsyncError says why. With QCCL_STREAM_SYNC the call returns when it is done; what the
 * caller's streams still do to its buffers has to be awaited before. On AMD's GPUs QCCL_STREAM_SYNC
 * alone is possible. Buffers are the GPU's memory, or managed memory.
 *
 * While a stream waits for other ranks in a call, a thread of the library starts work on the GPU,
 * and nothing may hold that up on any rank:
 * - No call that waits for the whole GPU, also where each rank is a process: cudaDeviceSynchronize,
 *   cudaFree, cudaFreeHost, cudaHostUnregister, the first launch of a kernel that CUDA loads lazily
 *   (set CUDA_MODULE_LOADING=EAGER, or launch it once before), and what PyTorch frees to try again
 *   when it is out of memory. So does the end of a communicator that sends through memory of the
 *   host: where ranks are on several hosts, some have no GPU, or GPUs do not reach each other's
 *   memory, and after a call that needed more than QCCL_ARENA. Such a call may return only when the
 *   collective fails with qcclTimeout.
 * - The stream has not the greatest priority, which the library's own streams have (a warning says
 *   so once), and ranks that are threads have enough queues of the GPU
 *   (CUDA_DEVICE_MAX_CONNECTIONS=32; with 1, a stream that waits holds up the library's).
 * - Ranks that are threads and share a GPU have a stream each, and none uses the default stream, as
 *   what stands in one stream waits for what stands before it.
 *
 * A call may be captured into a graph, and is made anew by each launch of the graph. All ranks
 * capture the same calls in the same order, those of captures that come to nothing too, and launch
 * what they captured as often. A graph's calls are made in the order in which they were captured,
 * also in branches beside each other. Where a call of another launch, or one that was not captured,
 * could be made at the same time, events have to order the two, alike on all ranks. If ranks come
 * to them in different orders the communicator fails (qcclMismatch); but where not all are on GPUs
 * of one vendor, a rank that cannot capture makes the call for each launch, and only a difference
 * in what is called is found. A launch is the caller's to await before the communicator ends: calls
 * that a graph comes to afterwards are not made. */
typedef void *qcclStream_t;
#define QCCL_STREAM_SYNC ((qcclStream_t)(intptr_t)-1)

/* ---- Versions and errors --------------------------------------------------------------------- */

/* The running library's version, as QCCL_VERSION counts (0.1.0 is 100). */
QCCL_API qcclResult_t qcclGetVersion(int *version_out);

/* A few words for a result; never NULL, also for numbers that are no result. */
QCCL_API const char *qcclGetErrorString(qcclResult_t result);

/* The sentence that belongs to an error: which argument or rank, what was expected, what came.
 *
 * With a communicator: its latest call's, whichever thread made it. "" where that call succeeded. A
 * communicator that has failed has the failure's sentence instead of "", for good. Questions
 * (qcclCommGetAsyncError, qcclCommCount, qcclCommUserRank, qcclExplain, qcclCommGetStats) replace
 * the sentence where they are refused and leave it where they are answered; qcclGetErrorInfo and
 * this function always leave it.
 * With NULL: that of this thread's latest call, on any object, that did not succeed; successful
 * calls leave it, as they leave errno. "" where there was none. A communicator that has been
 * destroyed or aborted: that it has.
 *
 * Valid until the next call of this function by the same thread. Any thread, any time. */
QCCL_API const char *qcclGetLastError(qcclComm_t comm);

/* The error whose sentence qcclGetLastError(comm) gives, in parts; its code is qcclSuccess where
 * that is "". Set `size` to sizeof(qcclErrorInfo_t) before the call. rank and peer are -1 where
 * none is meant; expected and got are 0 where nothing was compared. Any thread, any time. */
typedef struct {
    size_t size;
    qcclResult_t code;
    int32_t rank;           /* of this process */
    int32_t peer;           /* the rank at fault */
    int32_t collective;     /* 0 all-reduce, 1 reduce-scatter, 2 all-gather, 3 broadcast,
                             * 4 barrier, 5 qcclCommSplit; -1 none */
    uint64_t call;          /* number of the collective on the communicator, from 1 */
    uint64_t tag;           /* qcclCollConfig_t::tag of that call */
    int64_t expected;
    int64_t got;
    uint64_t reserved[4];
} qcclErrorInfo_t;
QCCL_API qcclResult_t qcclGetErrorInfo(qcclComm_t comm, qcclErrorInfo_t *info_out);

/* ---- Settings of a communicator and of a call ------------------------------------------------
 * Initialise with the macro, or from other languages with qcclConfigInit; zero means the default. A
 * field that this library does not know and that is not zero is refused, never ignored. Strings are
 * copied. */

#define QCCL_CONFIG_MAGIC 0x4C434351U /* "QCCL" */

/* What holds for both functions below. They are called from inside the library: on that
 * communicator they may call qcclCommRevoke and whatever only asks (for errors, size and rank,
 * statistics, an explanation); collectives, qcclCommFinalize, qcclCommDestroy and qcclCommAbort are
 * refused there (qcclInvalidUsage), and so is waiting for the stream whose thread it is. They must
 * return. `context` is handed through, and has to live until the communicator has been destroyed or
 * aborted, or its creation has failed. */

/* Called again and again while a collective waits long, from the thread that waits, which may be a
 * stream's: MPI's progress, Python's signals. Not called while a communicator is made. */
typedef struct {
    void (*function)(void *context);
    void *context;
} qcclIdle_t;

/* Called with each line of the log that QCCL_DEBUG lets pass (level 1 warn, 2 info, 3 trace), from
 * any thread, from several at once, and from creation on. `line` is valid during the call. */
typedef struct {
    void (*function)(int32_t level, const char *line, void *context);
    void *context;
} qcclLog_t;

typedef struct {
    size_t size;
    uint32_t magic;
    uint32_t version;
    const char *device;     /* "host" (default), "cuda:0", "hip:1", "emulated:0": where the buffers
                             * of this rank's calls lie; others' may be elsewhere. One that this
                             * machine or this build of QCCL does not have, and one whose driver is
                             * missing, is refused with qcclInvalidArgument */
    const char *codec;      /* of reductions that name none: "int8", "auto:nmse=1e-3" */
    const char *algorithm;  /* "ring", "hierarchy:share=leader"; default: planned */
    double timeout;         /* seconds that creation and calls wait for a live rank that does not
                             * come; < 0 for ever; 0 QCCL_TIMEOUT; NaN is refused */
    double peer_timeout;    /* seconds, below; 0 QCCL_PEER_TIMEOUT; < 0 and NaN are refused */
    qcclIdle_t idle;
    qcclLog_t log;          /* default: stderr or QCCL_DEBUG_FILE */
    const char *name;       /* shown in logs, errors, and by qccl-info attach; items of QCCL_CODEC,
                             * QCCL_ALGO and plan files may ask for it (comm=dp*), and then all
                             * ranks need the same */
    int32_t reproducible;   /* 1: results are the same bits on every machine, below; 0:
                             * QCCL_REPRODUCIBLE; anything else is refused */
    int32_t reserved_word;
    uint64_t reserved[7];
} qcclConfig_t;

/* With `reproducible` the library chooses the algorithm by the number of ranks, collective, root,
 * count, type, op and codec alone, and ranks are summed in an order that follows from their
 * numbers. So a call gives the same bits wherever the ranks are, on whatever devices, links and
 * cores, and whatever QCCL_SEGMENT, QCCL_LANES and QCCL_ARENA say. QCCL_ONESHOT_MAX,
 * QCCL_LINK_RATE, QCCL_LINK_LATENCY and QCCL_RACK_RATE are not heard. An algorithm that the caller
 * or QCCL_ALGO names is used; `hierarchy`, whose sums follow the hosts, is refused
 * (qcclInvalidArgument). A codec is used also where it makes the call slower. Calls may take
 * longer, because the choice does not know the machine. All ranks need the same. Another release
 * may choose another algorithm. */

/* peer_timeout bounds what ranks that have met still need of each other: in creation the exchange
 * of shared memory, and where ranks disagree about a call the time until qcclMismatch, if some have
 * not come to it (`timeout`, if that is shorter). A host that cannot be reached for longer is lost
 * (qcclPeerLost); an outage of up to a third costs only time. It plays no part in finding dead
 * processes: the kernel tells at once that one has ended, other hosts too, and one that is only
 * stopped lives. */

typedef struct {
    size_t size;
    uint32_t magic;
    uint32_t version;
    qcclCodec_t codec;      /* NULL: the communicator's, then QCCL_CODEC, then the plan file's
                             * (QCCL_PLAN_FILE), then lossless */
    const char *algorithm;  /* NULL: the communicator's, then QCCL_ALGO, then the plan file's, then
                             * planned */
    double timeout;         /* of this call, as in qcclConfig_t; 0: the communicator's */
    uint64_t tag;           /* shows up in errors and traces */
    uint64_t reserved[8];
} qcclCollConfig_t;

/* Every field, so that no compiler warns of a missing one. */
#define QCCL_CONFIG_INIT                                                                           \
    {sizeof(qcclConfig_t), QCCL_CONFIG_MAGIC, QCCL_VERSION, NULL, NULL, NULL, 0, 0,                \
     {NULL, NULL}, {NULL, NULL}, NULL, 0, 0, {0}}
#define QCCL_COLL_CONFIG_INIT                                                                      \
    {sizeof(qcclCollConfig_t), QCCL_CONFIG_MAGIC, QCCL_VERSION, NULL, NULL, 0, 0, {0}}

/* Fills `size` bytes at `config` (a qcclConfig_t or a qcclCollConfig_t) with zeros and the three
 * leading fields, as the macros do. For languages without macros. */
QCCL_API qcclResult_t qcclConfigInit(void *config, size_t size);

/* ---- Creating and ending communicators ------------------------------------------------------- */

#define QCCL_UNIQUE_ID_BYTES 128
typedef struct {
    char internal[QCCL_UNIQUE_ID_BYTES];
} qcclUniqueId;

/* Makes the id of one communicator and serves its rendezvous from this process, in the background,
 * until the communicator is made, ranks have stayed away for QCCL_TIMEOUT, or the process ends. It
 * listens on the interfaces that are up: all but the loopback, or those that QCCL_SOCKET_IFNAME
 * names, a list as NCCL_SOCKET_IFNAME is one: "ib0,eth" (names, or what they begin with; "=eth0" is
 * a name only), "^docker,virbr" (all but those), addresses of IPv4 and IPv6 too. The id carries
 * their addresses, which the ranks try in turn, and a secret: bring it to the other ranks by a
 * channel that you trust. */
QCCL_API qcclResult_t qcclGetUniqueId(qcclUniqueId *id_out);

/* Joins the communicator of `id` as rank 0 <= rank < nranks; blocks until all ranks have come. */
QCCL_API qcclResult_t qcclCommInitRank(qcclComm_t *comm_out, int nranks, const qcclUniqueId *id,
                                       int rank);
/* config may be NULL. */
QCCL_API qcclResult_t qcclCommInitRankConfig(qcclComm_t *comm_out, int nranks,
                                             const qcclUniqueId *id, int rank,
                                             const qcclConfig_t *config);

/* Makes all ranks of a communicator at once, for the threads of one process: rank r's is
 * comms_out[r]. devices is NULL, or names a device for each rank, as config.device does. A
 * blocking call returns when all ranks have made theirs, so each rank needs a thread of its own;
 * one thread can serve several ranks with host streams, one for each: what stands in one stream
 * waits for what stands before it. A process whose only thread waits for its own next call gets
 * qcclInvalidUsage. */
QCCL_API qcclResult_t qcclCommInitAll(qcclComm_t *comms_out, int nranks,
                                      const char *const devices[]);

/* The caller's own all-gather brings the ranks together: every rank gives `bytes` bytes at `mine`
 * and receives those of all ranks, in rank order, at `all`. Returns 0 on success, -qcclRemoteError
 * where it knows that another rank will not come, else any number, which the error names. */
typedef struct {
    int (*allgather)(const void *mine, void *all, size_t bytes, void *context);
    void *context;
} qcclOob_t;
/* Joins as rank 0 <= rank < nranks; blocks until all ranks have come, for as long as the all-gather
 * does. That is called several times, on the calling thread, and never after the return: *oob and
 * its context have to live as long. A rank that is refused for its arguments does not call it.
 * config may be NULL. For MPI's communicators there is qcclCommInitMpi in <qccl/mpi.h>. */
QCCL_API qcclResult_t qcclCommInitOob(qcclComm_t *comm_out, int nranks, int rank,
                                      const qcclOob_t *oob, const qcclConfig_t *config);

/* Joins as the rank that a launcher's environment variables say; blocks until all ranks have come,
 * early or late in any order. The first of these whose rank and size are both set is believed:
 *   RANK and WORLD_SIZE                     torchrun, or by hand; with MASTER_ADDR and MASTER_PORT
 *   PMI_RANK and PMI_SIZE                   MPICH's mpiexec; its wire (PMI_FD) says where rank 0 is
 *   OMPI_COMM_WORLD_RANK and ..._SIZE       Open MPI's mpirun, on one host, or with MASTER_ADDR
 *   SLURM_PROCID and SLURM_NTASKS           srun; rank 0 is on the first node of the step, or at
 *                                           MASTER_ADDR
 * What is missing is said by name. Rank 0 listens at QCCL_PORT, else at the port behind MASTER_PORT
 * (which torchrun and torch hold themselves), else, under mpirun and srun, at one that follows from
 * the job's number, on all interfaces or those of QCCL_SOCKET_IFNAME. Whoever can reach that port
 * and guess what the variables say can join: trust the network, or put a secret into the file that
 * QCCL_SECRET_FILE names, the same for all ranks, which others may not read. (With PMI a secret is
 * brought by its wire, which is as safe as the launcher's network.) Several communicators can be
 * made one after the other, by all ranks together. A process that comes as a rank that has come
 * already, or after the creation has failed, is told so for QCCL_PEER_TIMEOUT, as long as rank 0's
 * process lives, and gets qcclInvalidArgument or the code of the failure; later it waits for the
 * next creation. So are two processes on one host that are rank 0 both. A process that uses MPI
 * takes qcclCommInitMpi, because PMI's wire serves one of the two. config may be NULL. */
QCCL_API qcclResult_t qcclCommInitEnv(qcclComm_t *comm_out, const qcclConfig_t *config);

#define QCCL_SPLIT_NOCOLOR (-1)
/* Makes a communicator of the ranks of `comm` that give the same color, 0 or more, in the order of
 * their keys, and of their ranks where keys are equal. A rank with QCCL_SPLIT_NOCOLOR takes part in
 * the call and gets NULL. Every rank of `comm` calls it, in the same order as its collectives; it
 * waits for what the rank has enqueued, and returns when the rank's own group is complete. What
 * goes wrong inside a group fails the call for that group alone, and `comm` stays usable, unless a
 * rank is lost. The ranks meet over `comm`: no id, and no connection but those that its transport
 * has. config NULL: the config that `comm` was made with, whose functions and contexts then serve
 * both communicators. */
QCCL_API qcclResult_t qcclCommSplit(qcclComm_t comm, int color, int key, qcclComm_t *comm_out,
                                    const qcclConfig_t *config);

enum {
    QCCL_SHRINK_DEFAULT = 0,
    QCCL_SHRINK_ABORT = 1 /* first ends all calls on `comm`, on every rank (qcclRevoked) */
};
/* Makes a communicator of what is left of `comm`: of the ranks that have neither died nor ended
 * `comm`, without those in exclude[0] to exclude[exclude_count - 1] (NULL and 0: nobody), in the
 * order that they had. Works on a communicator that has failed, which is what it is for, and on one
 * that has not. Every rank that shall be left calls it, with the same exclude; those that are left
 * out by it do not. A rank that dies meanwhile, whichever it is, is left out too: either all that
 * are left have the new communicator, or none has, and where one dies at the very end, the new
 * communicator's next call says so. A rank that lives and does not come is waited for as long as
 * `timeout` says, and then named (qcclTimeout). A rank that makes another call instead, on a
 * communicator of which no rank has failed or died, fails that on all ranks (qcclMismatch). After
 * any error all ranks may call it again. Where `comm` has failed with a qcclMismatch that this
 * rank has not been told, qcclCommShrink returns it, and shrinks when it is called again; the
 * others wait for that, but for a rank that makes other calls instead no longer than peer_timeout.
 * Where `comm` has failed otherwise and ranks that are left had made different calls before, each
 * gets a qcclMismatch once, because their data may differ. A rank that was left out by `exclude` is
 * left out by later shrinks of `comm`, too, whatever they exclude; its own qcclCommShrink returns
 * qcclPeerLost. `comm` stays as it was, and has to be ended by its owner. Ranks that cannot reach
 * each other hold each other for dead: a job that falls into two halves goes on as two. config
 * NULL: as for qcclCommSplit. */
QCCL_API qcclResult_t qcclCommShrink(qcclComm_t comm, const int exclude[], int exclude_count,
                                     qcclComm_t *comm_out, const qcclConfig_t *config, int flags);

/* Waits until the work enqueued on `comm` is done, on every stream, and until every rank has begun
 * the calls that this rank has made (bounded by `timeout`), and compares them: a rank that only
 * sends may return from a call before the others have come to it, and before it can be known that
 * they mean the same. Returns qcclMismatch where ranks have made different calls, qcclPeerLost and
 * qcclTimeout where one does not come, and else the error that failed the communicator, if one
 * has. */
QCCL_API qcclResult_t qcclCommFinalize(qcclComm_t comm);
/* Waits and compares likewise, then frees, whatever it returns. A communicator that has failed, or
 * is revoked meanwhile, is freed without waiting (qcclSuccess), but a qcclMismatch that this rank
 * has not been told is returned here: that no call, no function of its stream and no
 * qcclCommGetAsyncError has given it. NULL does nothing. A peer that still waits for this rank is
 * told. A process that ends without it has died for the others, whose call may fail though this
 * rank's has returned. qcclInvalidUsage while another thread is inside: the communicator stays, and
 * is to be destroyed later. */
QCCL_API qcclResult_t qcclCommDestroy(qcclComm_t comm);
/* Ends whatever this rank is in the middle of, fails the communicator on every rank, and frees it
 * here. Any thread, any time: a call of another thread that is inside returns first (qcclRevoked),
 * and a thread that calls again gets qcclInvalidUsage. Where another thread is already destroying
 * or aborting `comm`, that one is sped up, and this one gets qcclInvalidUsage. */
QCCL_API qcclResult_t qcclCommAbort(qcclComm_t comm);
/* Fails the communicator on every rank (qcclRevoked) and keeps it. Any thread, any time. */
QCCL_API qcclResult_t qcclCommRevoke(qcclComm_t comm);
/* The error that failed the communicator, qcclInProgress while enqueued work runs, else
 * qcclSuccess. Any thread, any time. */
QCCL_API qcclResult_t qcclCommGetAsyncError(qcclComm_t comm, qcclResult_t *result_out);

/* Any thread, any time. */
QCCL_API qcclResult_t qcclCommCount(qcclComm_t comm, int *count_out);
QCCL_API qcclResult_t qcclCommUserRank(qcclComm_t comm, int *rank_out);

/* ---- Collectives -----------------------------------------------------------------------------
 * Every rank of `comm` calls the same function with equal count, type, op, root, codec and
 * algorithm, in the same order; where ranks disagree every rank gets qcclMismatch, which names the
 * lowest rank that differs from rank 0 and both values (where rank 0 does not come within
 * peer_timeout: from the lowest that has come). The root of a broadcast waits for no other rank and
 * may have returned by then: it gets qcclMismatch from its next call in which it receives anything,
 * at the latest from qcclCommFinalize or qcclCommDestroy. count is in elements; 0 is allowed, with
 * NULL buffers, and is still checked for agreement. Buffers may overlap only in the in-place form
 * that each function names. config may be NULL. */

/* Combines `count` elements of every rank and leaves the same result on every rank. In place:
 * recv == send. */
QCCL_API qcclResult_t qcclAllReduce(const void *send, void *recv, size_t count, qcclDataType_t type,
                                    qcclRedOp_t op, qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclAllReduceConfig(const void *send, void *recv, size_t count,
                                          qcclDataType_t type, qcclRedOp_t op, qcclComm_t comm,
                                          qcclStream_t stream, const qcclCollConfig_t *config);

/* Combines nranks * recv_count elements of every rank and leaves block r of the result, recv_count
 * elements, on rank r. In place: recv == send + rank * recv_count elements. */
QCCL_API qcclResult_t qcclReduceScatter(const void *send, void *recv, size_t recv_count,
                                        qcclDataType_t type, qcclRedOp_t op, qcclComm_t comm,
                                        qcclStream_t stream);
QCCL_API qcclResult_t qcclReduceScatterConfig(const void *send, void *recv, size_t recv_count,
                                              qcclDataType_t type, qcclRedOp_t op, qcclComm_t comm,
                                              qcclStream_t stream, const qcclCollConfig_t *config);

/* Leaves the send_count elements of every rank, in rank order, on every rank. In place:
 * send == recv + rank * send_count elements. */
QCCL_API qcclResult_t qcclAllGather(const void *send, void *recv, size_t send_count,
                                    qcclDataType_t type, qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclAllGatherConfig(const void *send, void *recv, size_t send_count,
                                          qcclDataType_t type, qcclComm_t comm, qcclStream_t stream,
                                          const qcclCollConfig_t *config);

/* Leaves root's `count` elements on every rank; `send` is read on root only and may be NULL
 * elsewhere. In place: recv == send. With a codec root too receives what the others decode. */
QCCL_API qcclResult_t qcclBroadcast(const void *send, void *recv, size_t count, qcclDataType_t type,
                                    int root, qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclBroadcastConfig(const void *send, void *recv, size_t count,
                                          qcclDataType_t type, int root, qcclComm_t comm,
                                          qcclStream_t stream, const qcclCollConfig_t *config);

/* Returns (or lets the stream go on) when every rank has come. */
QCCL_API qcclResult_t qcclBarrier(qcclComm_t comm, qcclStream_t stream);
QCCL_API qcclResult_t qcclBarrierConfig(qcclComm_t comm, qcclStream_t stream,
                                        const qcclCollConfig_t *config);

/* ---- Codecs ----------------------------------------------------------------------------------
 * A codec is named by a spec string: none fp16 bf16 fp8e4m3 fp8e5m2 int12 int10 int8 int6 int5 int4
 * int3 int2 minmax mxfp8e4m3 mxfp6e2m3 mxfp4 nvfp4 onebit terngrad topk, then ":key=value,..."
 * (block, bits, bucket, round, seed, min, skip_incomplete, scale, clip, ratio, guard). A wrong spec
 * is refused with what is possible. Codecs are immutable: any thread, any communicator.
 *
 * "auto" names a budget instead, and every call chooses its codec: "auto:nmse=1e-3" the fastest
 * that keeps the NMSE of the result (none, unless a codec between hosts is expected to be 1.25
 * times as fast; with "min=0" one anywhere), "auto:bits=4.5" the most accurate of at most so many
 * bits a value; both together, and "from=int+minmax+nvfp4+bf16", may be said. Calls go lossless
 * where no codec keeps the budget; rank 0 warns of it once.
 *
 * "guard=nmse:1e-2" has the library look at samples of calls' values. When those of one rank would
 * lose more than this NMSE in the result, calls of the same shape and tag go lossless on all ranks
 * from the next one on, and come back when 16 or more samples in a row keep half of it; rank 0
 * warns of the first time. All ranks give such a call the same tag (qcclMismatch names two that
 * differ). Calls that a graph makes again are guarded as others.
 *
 * Both are of collectives alone: of the functions below all but Create and Destroy refuse such a
 * codec with qcclInvalidArgument. */

QCCL_API qcclResult_t qcclCodecCreate(qcclCodec_t *codec_out, const char *spec);
/* NULL does nothing. Calls that have been made keep their own copy. */
QCCL_API qcclResult_t qcclCodecDestroy(qcclCodec_t codec);
/* What qcclCodecEncode needs at most for `count` elements, header included. */
QCCL_API qcclResult_t qcclCodecMaxEncodedBytes(qcclCodec_t codec, size_t count, qcclDataType_t type,
                                               size_t *bytes_out);
/* Encodes into a container that says what it holds and carries a CRC32C. Buffers must not overlap;
 * they and the stream are the host's. *written_out is set when the call returns, also on a
 * stream. */
QCCL_API qcclResult_t qcclCodecEncode(qcclCodec_t codec, const void *src, size_t count,
                                      qcclDataType_t type, void *dst, size_t capacity,
                                      size_t *written_out, qcclStream_t stream);
/* Decodes what qcclCodecEncode wrote; codec, type and count must be those of the encoding.
 * qcclDamagedData where the bytes are not a whole, intact container. */
QCCL_API qcclResult_t qcclCodecDecode(qcclCodec_t codec, const void *src, size_t bytes, void *dst,
                                      size_t count, qcclDataType_t type, qcclStream_t stream);

/* ---- Host streams ---------------------------------------------------------------------------- */

/* A queue with a thread of its own. Calls on one communicator happen in the order in which they
 * were made, whatever streams they name. An error is kept and returned by qcclStreamSynchronize. */
QCCL_API qcclResult_t qcclStreamCreate(qcclStream_t *stream_out);
/* Waits for what was enqueued, and for other threads' calls with the stream, then frees. NULL does
 * nothing. */
QCCL_API qcclResult_t qcclStreamDestroy(qcclStream_t stream);
/* Waits until the queue is empty; returns the first error since the last call, once. */
QCCL_API qcclResult_t qcclStreamSynchronize(qcclStream_t stream);
/* qcclSuccess if the queue is empty, else qcclInProgress; an error like Synchronize. */
QCCL_API qcclResult_t qcclStreamQuery(qcclStream_t stream);

/* ---- Memory ---------------------------------------------------------------------------------- */

/* A block of `bytes` bytes, page-aligned, in memory of the host that other processes can map, for
 * buffers of collectives. Any memory of the host works in any collective of communicators on the
 * host; this can be registered. */
QCCL_API qcclResult_t qcclMemAlloc(void **pointer_out, size_t bytes);
/* NULL does nothing. Takes the pointer that qcclMemAlloc gave; others are refused as far as can be
 * seen, and with qcclInvalidUsage memory that is still registered. */
QCCL_API qcclResult_t qcclMemFree(void *pointer);

/* Lets the other ranks read the memory from qcclMemAlloc in which `bytes` bytes at `buffer` lie,
 * in place: lossless collectives on large buffers there need no copy for their peers. Memory of
 * another kind is refused. Optional, and local to this rank: some ranks may register and others
 * not, as often and for as long as they like; results are the same bytes in any case, and nothing
 * changes where peers cannot map the memory, or beyond 32 blocks on one communicator; lent_bytes
 * of qcclCommStats_t shows what has been. The memory stays the caller's, who may change it whenever
 * no call uses it. To be called between calls: while some are under way on streams it answers
 * qcclInvalidUsage. *handle_out is valid until qcclCommDeregister or the end of the communicator,
 * whichever comes first. */
QCCL_API qcclResult_t qcclCommRegister(qcclComm_t comm, void *buffer, size_t bytes,
                                       void **handle_out);
/* NULL does nothing. Memory that was registered several times is deregistered as often. Peers let
 * go of it at one of their next 64 calls (at the first that is not small), or with their
 * communicator: what is freed before stays in use until then. qcclInvalidUsage while calls are
 * under way on streams, for a handle that has been deregistered, and for another communicator's. */
QCCL_API qcclResult_t qcclCommDeregister(qcclComm_t comm, void *handle);

/* ---- Seeing ---------------------------------------------------------------------------------- */

/* What the planner would do, as text with its reasons, and over which transport. `what` is a call
 * in words: "all_reduce bytes=64M type=float op=sum codec=int4". The collective comes first; then,
 * in any order and each with a default, bytes= (of the whole vector: with reduce_scatter and
 * all_gather all ranks' blocks) or count= (elements, as the function takes them), but not both,
 * type=, op=, root=, codec=, algorithm= and format= (text, or json: one object with the same and
 * more, which `man qccl-info` describes). Without codec= and algorithm= it says what a call without
 * a config would get, and first whose codec, algorithm and cut that are, if the communicator's
 * config or the environment named them: "codec int4 by item 2 of QCCL_CODEC, ...". The last line of
 * a text begins with the chosen algorithm and says why it won. *bytes is the buffer's size before
 * the call and the text's, closing zero included, after it. buffer may be NULL to ask for the size;
 * one that is too small is refused, with *bytes set. Any thread, any time. */
QCCL_API qcclResult_t qcclExplain(qcclComm_t comm, const char *what, char *buffer, size_t *bytes);

/* Sums since the communicator was made. Set `size` to sizeof(qcclCommStats_t) before the call.
 * Times are in nanoseconds of this rank's host; small calls (those over lines) are not timed,
 * which between GPUs that reach each other may be as large as 1 MiB. On a GPU encode_ns is what
 * launches take, and copy_ns what it takes to find out that they are done; that the host waits for
 * the kernels counts as wait_ns. Any thread, any time. */
typedef struct {
    size_t size;
    uint64_t calls;
    uint64_t raw_bytes;  /* of the calls' vectors, unencoded */
    uint64_t wire_bytes; /* that this rank sent, headers included */
    uint64_t encode_ns;
    uint64_t copy_ns;    /* decode, reduce and copy */
    uint64_t wait_ns;
    uint64_t wire_ns;    /* handing over and receiving */
    uint64_t lent_bytes; /* of wire_bytes, that the others read in registered memory of this rank */
    uint64_t network_ns; /* of wait_ns and wire_ns, that the network between hosts has worked: over
                          * sockets the system's TCP, as far as it works for this rank's calls */
    uint64_t device_bytes; /* that kernels on this rank's GPU have read and written */
    uint64_t guarded_calls; /* that went lossless because of their codec's guard */
    uint64_t reserved[4];
} qcclCommStats_t;
QCCL_API qcclResult_t qcclCommGetStats(qcclComm_t comm, qcclCommStats_t *stats_out);

#ifdef __cplusplus
}
#endif

#endif
