/* Communicators whose ranks are those of an MPI communicator. Compiled against the program's own
 * MPI, whichever that is: libqccl itself knows none, and one libqccl serves them all.
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

/* What the functions below tell each other; not for programs. */
typedef struct {
    MPI_Comm mpi;
    int has_met; /* the ranks have told each other that all take part */
} qcclMpiMeeting_t;

/* MPI's error. *all_out: whether every rank has said 1. */
static inline int qcclMpiMeet(qcclMpiMeeting_t *meeting, int mine, int *all_out)
{
    meeting->has_met = 1;
    return MPI_Allreduce(&mine, all_out, 1, MPI_INT, MPI_MIN, meeting->mpi);
}

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

/* Makes a communicator of the ranks of `mpi`, numbered as there; every one of them has to call it.
 * Any intra-communicator will do, MPI_Comm_split's too; it is used until the return, from the
 * calling thread, and stays the caller's: nothing of it is kept. MPI_COMM_NULL and an
 * inter-communicator are refused (qcclInvalidArgument), and so is whatever MPI has when it is not
 * running. What MPI reports as an error becomes qcclSystemError and does not end the program,
 * whatever error handler `mpi` has; that is put back before the return. Where one rank is refused
 * for its arguments, the others get qcclRemoteError. config may be NULL. */
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
    /* Refused before it met the others, who wait for its word. */
    if (!meeting.has_met) (void)qcclMpiMeet(&meeting, 0, &all);
    MPI_Comm_set_errhandler(mpi, handler);
    MPI_Errhandler_free(&handler);
    return result;
}

#ifdef __cplusplus
}
#endif

#endif
