/* One implicit step of the heat equation on a square of N * N points, by conjugate gradients, once
 * for each codec. Any launcher may start the ranks, whose number divides N: each has a block of
 * rows.
 *
 *     cc -O2 cg.c -o cg $(pkg-config --cflags --libs qccl) -lm && mpirun -n 4 ./cg
 *
 * Each step gathers the residual r, and a codec may change what is gathered. All ranks, also the
 * sender of a block, then have the same decoded z, and go the same way p. The step along p follows
 * from dot products of p itself, in full precision, so r stays the residual of x whatever the codec
 * does. An encoded z is only a less good way: CG with z as a preconditioned residual (flexible CG)
 * comes to the same tolerance in some more steps. Without a codec z = r, which is plain CG. At the
 * end the residual is computed anew, from x as a lossless gather brings it. min=0 asks for the
 * codec also between hosts whose links' rate QCCL does not know.
 */
#include <math.h>
#include <qccl/qccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 240 };
static const double capacity = 0.01;
static double z[(N + 2) * N]; /* of all ranks, with a row of zeros at each edge */
static double x[N * N], p[N * N], r[N * N], w[N * N], q[N * N]; /* this rank's rows come first */
static int rank, ranks, rows;
static qcclComm_t comm;

static void must(qcclResult_t result)
{
    if (result == qcclSuccess) return;
    fprintf(stderr, "rank %d: %s\n", rank, qcclGetLastError(NULL));
    exit(1);
}

/* Gathers `mine` of all ranks as z, and leaves the matrix times z in w. Returns this rank's rows of
 * z. */
static const double *multiply(const double *mine, qcclCodec_t codec)
{
    const double *own = z + (1 + rank * rows) * N;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.codec = codec;
    must(qcclAllGatherConfig(mine, z + N, (size_t)(rows * N), qcclFloat64, comm, NULL, &config));
    for (int i = 0; i < rows * N; i++)
        w[i] = (4 + capacity) * own[i] - own[i - N] - own[i + N] - (i % N > 0 ? own[i - 1] : 0) -
               (i % N < N - 1 ? own[i + 1] : 0);
    return own;
}

/* Returns the number of steps, and the residual at *residual. */
static int solve(qcclCodec_t codec, double *residual)
{
    double pq = 1;
    int step = 0;
    for (int i = 0; i < rows * N; i++) {
        x[i] = p[i] = q[i] = 0;
        r[i] = capacity;
    }
    for (;; step++) {
        const double *own = multiply(r, codec);
        double s[4] = {0, 0, 0, 0};
        for (int i = 0; i < rows * N; i++) {
            s[0] += r[i] * r[i];
            s[1] += own[i] * q[i];
            s[2] += own[i] * w[i];
            s[3] += own[i] * r[i];
        }
        must(qcclAllReduce(s, s, 4, qcclFloat64, qcclSum, comm, NULL));
        if (s[0] < 1e-16 || step == 9999) break;
        const double turn = s[1] / pq;
        pq = s[2] - s[1] * turn;
        for (int i = 0; i < rows * N; i++) {
            p[i] = own[i] - turn * p[i];
            q[i] = w[i] - turn * q[i];
            x[i] += s[3] / pq * p[i];
            r[i] -= s[3] / pq * q[i];
        }
    }
    multiply(x, NULL);
    *residual = 0;
    for (int i = 0; i < rows * N; i++) *residual += (capacity - w[i]) * (capacity - w[i]);
    must(qcclAllReduce(residual, residual, 1, qcclFloat64, qcclSum, comm, NULL));
    return step;
}

int main(void)
{
    const char *const specs[] = {"none", "bf16:min=0", "int8:min=0"};
    must(qcclCommInitEnv(&comm, NULL));
    must(qcclCommUserRank(comm, &rank));
    must(qcclCommCount(comm, &ranks));
    rows = N / ranks;
    if (N % ranks != 0) return fprintf(stderr, "the number of ranks has to divide %d\n", N), 1;
    if (rank == 0) printf("codec      steps seconds   residual\n");
    for (int i = 0; i < 3; i++) {
        qcclCodec_t codec;
        struct timespec begin, end;
        double residual;
        must(qcclCodecCreate(&codec, specs[i]));
        timespec_get(&begin, TIME_UTC);
        const int steps = solve(codec, &residual);
        timespec_get(&end, TIME_UTC);
        const double seconds =
            difftime(end.tv_sec, begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
        if (rank == 0) printf("%-10s%6d%8.3f%11.2e\n", specs[i], steps, seconds, sqrt(residual));
        must(qcclCodecDestroy(codec));
    }
    must(qcclCommDestroy(comm));
}
