/* Makes communicators of the ranks of an MPI communicator. MPI programs include this header, which
 * is compiled against the program's own MPI. libqccl does not use MPI itself, so one libqccl serves
 * every MPI.
 *
 *     MPI_Init(&argc, &argv);
 *     qcclComm_t comm;
 *     qcclCommInitMpi(&comm, MPI_COMM_WORLD, NULL);
 *     qcclAllReduce(gradient, gradient, count, qcclFloat32, qcclSum, comm, NULL);
 *     qcclCommDestroy(comm);
 *     MPI_Finalize();
 */
#ifndef QCCL_MPI_H
#define QCCL_MPI_H

#include <limits.h>
#include <stddef.h>

#include <mpi.h>

#include <qccl/qccl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* State that the functions below share. A program does not use it. */
typedef struct {
    MPI_Comm mpi;
    int has_met; /* 1: this rank has told the others whether it takes part */
} qcclMpiMeeting_t;

/* Tells the other ranks whether this rank takes part: `mine` is 1 or 0. *all_out receives 1 if
 * every rank takes part, else 0. Returns MPI's error code. Blocks until all ranks have called
 * it. */
static inline int qcclMpiMeet(qcclMpiMeeting_t *meeting, int mine, int *all_out)
{
    meeting->has_met = 1;
    return MPI_Allreduce(&mine, all_out, 1, MPI_INT, MPI_MIN, meeting->mpi);
}

/* The all-gather of qcclOob_t over MPI. The first call also checks that every rank takes part.
 * Returns 0 (MPI_SUCCESS) on success, -qcclRemoteError if another rank does not take part, else
 * MPI's error code. */
static inline int qcclMpiAllgather(const void *mine, void *all, size_t bytes, void *context)
{
    qcclMpiMeeting_t *meeting = (qcclMpiMeeting_t *)context;
    int is_complete = 1, error = MPI_SUCCESS;
    if (bytes > INT_MAX) return MPI_ERR_COUNT;
    if (!meeting->has_met) error = qcclMpiMeet(meeting, 1, &is_complete);
    if (error != MPI_SUCCESS) return error;
    if (!is_complete) return -qcclRemoteError;
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, meeting->mpi);
}

/* Makes a communicator of the ranks of `mpi`, with the same numbers. Every rank of `mpi` calls it.
 *
 * comm_out: receives the communicator. The caller ends it with qcclCommDestroy or qcclCommAbort.
 * mpi: any intra-communicator, also one of MPI_Comm_split. The function uses it on the calling
 *   thread, and not after it has returned. It stays the caller's. While the function runs, errors
 *   of MPI on `mpi` return instead of ending the program, whatever its error handler is; the
 *   function then restores the handler.
 * config: NULL stands for the defaults. The function reads it only during the call.
 * Returns
 *   creation errors      as in qcclCommInitOob. qcclInvalidArgument also if `mpi` is MPI_COMM_NULL
 *                        or an inter-communicator, or MPI is not running; qcclSystemError also if
 *                        MPI reports an error; qcclRemoteError also if another rank was refused for
 *                        comm_out or config.
 *   qcclInvalidUsage     as in qcclCommInitOob.
 * Threads: one that may call MPI. Blocks until all ranks have joined. */
static inline qcclResult_t qcclCommInitMpi(qcclComm_t *comm_out, MPI_Comm mpi,
                                           const qcclConfig_t *config)
{
    qcclMpiMeeting_t meeting;
    qcclOob_t oob;
    qcclResult_t result;
    MPI_Errhandler handler;
    int is_running = 0, has_ended = 0, is_inter = 0, all = 0, nranks = 0, rank = 0;
    meeting.mpi = mpi;
    meeting.has_met = 0;
    oob.allgather = qcclMpiAllgather;
    oob.context = &meeting;
    if (MPI_Initialized(&is_running) != MPI_SUCCESS || MPI_Finalized(&has_ended) != MPI_SUCCESS)
        is_running = 0;
    if (!is_running || has_ended || mpi == MPI_COMM_NULL ||
        MPI_Comm_test_inter(mpi, &is_inter) != MPI_SUCCESS || is_inter)
        return qcclCommInitOob(comm_out, 0, 0, &oob, config);

    if (MPI_Comm_get_errhandler(mpi, &handler) != MPI_SUCCESS) return qcclSystemError;
    MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN);
    MPI_Comm_size(mpi, &nranks);
    MPI_Comm_rank(mpi, &rank);
    result = qcclCommInitOob(comm_out, nranks, rank, &oob, config);
    /* This rank was refused before it met the others, and they wait for it. */
    if (!meeting.has_met) (void)qcclMpiMeet(&meeting, 0, &all);
    MPI_Comm_set_errhandler(mpi, handler);
    MPI_Errhandler_free(&handler);
    return result;
}

#ifdef __cplusplus
}
#endif

#endif
