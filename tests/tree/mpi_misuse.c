/* Tests qcclCommInitMpi where it cannot succeed: a refusal on one rank, an
 * error of MPI, and MPI communicators that QCCL cannot use. No rank may hang,
 * and MPI may end none. mpi_header_test.py starts the program under an MPI. */
#include <qccl/mpi.h>
#include <stdio.h>
#include <string.h>

/* Intercepts the calls of the header, as an MPI profiling tool does, and lets
 * one of them fail. */
static int calls_before_failure = -1;

int MPI_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *recv,
                  int recv_count, MPI_Datatype recv_type, MPI_Comm comm)
{
    if (calls_before_failure == 0) {
        MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
        return MPI_ERR_OTHER;
    }
    calls_before_failure--;
    return PMPI_Allgather(send, send_count, send_type, recv, recv_count, recv_type, comm);
}

static int failures;

static void check(int is_right, const char *what)
{
    if (is_right) return;
    failures++;
    fprintf(stderr, "not so: %s (%s)\n", what, qcclGetLastError(NULL));
}
#define CHECK(condition) check(condition, #condition)

static void handle(MPI_Comm *comm, int *error, ...)
{
    (void)comm;
    (void)error;
    check(0, "the caller's error handler is called");
}

static void check_that_errors_become_results(MPI_Errhandler mine)
{
    for (int call = 0; call < 3; call++) {
        qcclComm_t comm = NULL;
        MPI_Errhandler after;
        calls_before_failure = call;
        CHECK(qcclCommInitMpi(&comm, MPI_COMM_WORLD, NULL) == qcclSystemError);
        CHECK(comm == NULL);
        CHECK(strstr(qcclGetLastError(NULL), "all-gather returned") != NULL);
        calls_before_failure = -1;
        MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
        CHECK(after == mine);
        MPI_Errhandler_free(&after);
    }
}

static void check_that_a_refusal_reaches_all(int rank)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t comm = NULL;
    if (rank == 1) config.codec = "no codec";
    const qcclResult_t result = qcclCommInitMpi(&comm, MPI_COMM_WORLD, &config);
    CHECK(result == (rank == 1 ? qcclInvalidArgument : qcclRemoteError));
    CHECK(strstr(qcclGetLastError(NULL), rank == 1 ? "no codec" : "another rank") != NULL);
    CHECK(qcclCommInitMpi(rank == 1 ? NULL : &comm, MPI_COMM_WORLD, NULL) == result);
    CHECK(comm == NULL);
}

static void check_that_there_must_be_ranks(int rank)
{
    qcclComm_t comm = NULL;
    MPI_Comm half, inter;
    CHECK(qcclCommInitMpi(&comm, MPI_COMM_NULL, NULL) == qcclInvalidArgument);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 5, &inter);
    CHECK(qcclCommInitMpi(&comm, inter, NULL) == qcclInvalidArgument);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    int rank;
    qcclComm_t comm = NULL;
    MPI_Errhandler mine;
    CHECK(qcclCommInitMpi(&comm, MPI_COMM_WORLD, NULL) == qcclInvalidArgument);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_create_errhandler(handle, &mine);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine);

    check_that_errors_become_results(mine);
    check_that_a_refusal_reaches_all(rank);
    check_that_there_must_be_ranks(rank);
    /* The MPI communicator still works after all these errors. */
    CHECK(qcclCommInitMpi(&comm, MPI_COMM_WORLD, NULL) == qcclSuccess);
    CHECK(qcclCommDestroy(comm) == qcclSuccess);

    MPI_Errhandler_free(&mine);
    MPI_Finalize();
    CHECK(qcclCommInitMpi(&comm, MPI_COMM_WORLD, NULL) == qcclInvalidArgument);
    return failures;
}
