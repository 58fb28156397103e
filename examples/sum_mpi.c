/* Sums a vector over the ranks of MPI_COMM_WORLD, and over each half of them, and checks both sums.
 *
 *     mpicc sum_mpi.c -o sum_mpi $(pkg-config --cflags --libs qccl) && mpirun -n 4 ./sum_mpi
 */
#include <qccl/mpi.h>
#include <stdio.h>

#define COUNT 100000
static float values[COUNT];

/* Rank r contributes r + i % 1000 at index i. Returns 0 if the sum is right. */
static int sum_over(MPI_Comm mpi, const char *what)
{
    qcclComm_t comm;
    int rank, size, wrong = 0;
    MPI_Comm_rank(mpi, &rank);
    MPI_Comm_size(mpi, &size);
    for (int i = 0; i < COUNT; i++) values[i] = (float)(rank + i % 1000);
    if (qcclCommInitMpi(&comm, mpi, NULL) != qcclSuccess ||
        qcclAllReduce(values, values, COUNT, qcclFloat32, qcclSum, comm, NULL) != qcclSuccess) {
        fprintf(stderr, "%s, rank %d: %s\n", what, rank, qcclGetLastError(NULL));
        return 1;
    }
    for (int i = 0; i < COUNT; i++) {
        const int right = size * (size - 1) / 2 + size * (i % 1000);
        wrong += values[i] != (float)right;
    }
    printf("%s: rank %d of %d has %d wrong values\n", what, rank, size, wrong);
    return qcclCommDestroy(comm) != qcclSuccess || wrong > 0;
}

int main(int argc, char **argv)
{
    int rank, failed;
    MPI_Comm half;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    failed = sum_over(MPI_COMM_WORLD, "world");
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    failed += sum_over(half, rank % 2 ? "odd" : "even");
    MPI_Comm_free(&half);
    MPI_Finalize();
    return failed;
}
