/* Sums a vector over the ranks of a job, and checks the sum. Any launcher may start the ranks. The
 * program does it twice, to show that communicators can be made one after the other.
 *
 *     cc sum_env.c -o sum_env $(pkg-config --cflags --libs qccl)
 *     torchrun --no-python --nproc-per-node 4 ./sum_env
 *     mpirun -n 4 ./sum_env                                # Open MPI's or MPICH's
 *     srun -n 4 ./sum_env
 *     for r in 0 1 2 3; do                                 # by hand, here or on several hosts
 *         RANK=$r WORLD_SIZE=4 MASTER_ADDR=localhost QCCL_PORT=4711 ./sum_env &
 *     done; wait
 */
#include <qccl/qccl.h>
#include <stdio.h>

#define COUNT 100000
static float values[COUNT];

/* Rank r contributes r + i % 1000 at index i. Returns 0 if the sum is right. */
static int sum_once(const char *what)
{
    qcclComm_t comm;
    int rank, size, wrong = 0;
    if (qcclCommInitEnv(&comm, NULL) != qcclSuccess) {
        fprintf(stderr, "%s: %s\n", what, qcclGetLastError(NULL));
        return 1;
    }
    qcclCommUserRank(comm, &rank);
    qcclCommCount(comm, &size);
    for (int i = 0; i < COUNT; i++) values[i] = (float)(rank + i % 1000);
    if (qcclAllReduce(values, values, COUNT, qcclFloat32, qcclSum, comm, NULL) != qcclSuccess) {
        fprintf(stderr, "%s, rank %d: %s\n", what, rank, qcclGetLastError(comm));
        return 1;
    }
    for (int i = 0; i < COUNT; i++) {
        const int right = size * (size - 1) / 2 + size * (i % 1000);
        wrong += values[i] != (float)right;
    }
    printf("%s: rank %d of %d has %d wrong values\n", what, rank, size, wrong);
    return qcclCommDestroy(comm) != qcclSuccess || wrong > 0;
}

int main(void) { return sum_once("first") || sum_once("second"); }
