/* Sums vectors on GPUs over the ranks of a job, in streams, and checks the sums. The arguments name
 * devices, and the ranks take them in turn: emulated:0, which every machine has, or cuda:0 if the
 * program was compiled for CUDA.
 *
 *     cc sum_gpu.c -o sum_gpu $(pkg-config --cflags --libs qccl) -lqccl_emulated
 *     mpirun -n 2 ./sum_gpu emulated:0 emulated:1          # or srun, torchrun --no-python
 *
 *     cc -DUSE_CUDA sum_gpu.c -o sum_gpu $(pkg-config --cflags --libs qccl) -lcudart
 *     for r in 0 1; do                                     # by hand, both ranks on one GPU
 *         RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost QCCL_PORT=4711 ./sum_gpu cuda:0 &
 *     done; wait
 */
#include <qccl/qccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef USE_CUDA
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#define VENDOR "cuda:"
#define COPY(to, from, bytes, stream) cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream)
#else
#include <qccl/emulated.h>
#define GPU(name) qcclEmulated##name
#define VENDOR "emulated:"
#define COPY(to, from, bytes, stream) qcclEmulatedMemcpyAsync(to, from, bytes, stream)
#endif

#define COUNT 100000

static void gpu(int result)
{
    if (result == GPU(Success)) return;
    fprintf(stderr, "the GPU: %s\n", GPU(GetErrorString)(result));
    exit(1);
}

static void qccl(qcclResult_t result, qcclComm_t comm)
{
    if (result == qcclSuccess) return;
    fprintf(stderr, "%s\n", qcclGetLastError(comm));
    exit(1);
}

/* Returns the rank as the launcher's variables state it, asked in the order of qcclCommInitEnv.
 * NULL: no launcher has started the program. */
static const char *launched_rank(void)
{
    static const char *const names[] = {"RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return getenv(names[i]);
    return NULL;
}

/* Returns 1 if the arguments name devices, and all of them are GPUs of the runtime that the program
 * is compiled with. */
static int names_gpus(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], VENDOR, strlen(VENDOR)) != 0) return 0;
    return argc > 1;
}

int main(int argc, char **argv)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t comm;
    qcclResult_t state;
    GPU(Stream_t) stream;
    const size_t bytes = COUNT * sizeof(float);
    void *vector, *host;
    float *values;
    int rank, size, wrong = 0;

    if (!names_gpus(argc, argv) || !launched_rank()) {
        fprintf(stderr,
                "usage: mpirun -n 2 %s " VENDOR "N...   (every device must be an " VENDOR "N)\n",
                argv[0]);
        return 2;
    }
    config.device = argv[1 + atoi(launched_rank()) % (argc - 1)];
    qccl(qcclCommInitEnv(&comm, &config), NULL);
    qcclCommUserRank(comm, &rank);
    qcclCommCount(comm, &size);

    /* The program's own runtime and the library see the same GPUs. */
    gpu(GPU(SetDevice)(atoi(config.device + strlen(VENDOR))));
    gpu(GPU(StreamCreate)(&stream));
    gpu(GPU(Malloc)(&vector, bytes));
    gpu(GPU(MallocHost)(&host, bytes)); /* a copy of other memory would wait for the stream */
    values = host;

    /* Only the last of these lines waits: the stream does all work in order. */
    for (int i = 0; i < COUNT; i++) values[i] = (float)(rank + i % 1000);
    gpu(COPY(vector, values, bytes, stream));
    qccl(qcclAllReduce(vector, vector, COUNT, qcclFloat32, qcclSum, comm, stream), comm);
    qccl(qcclAllReduce(vector, vector, COUNT, qcclFloat32, qcclAvg, comm, stream), comm);
    gpu(COPY(values, vector, bytes, stream));
    gpu(GPU(StreamSynchronize)(stream));
    /* A call that fails in the stream does not stop the stream, so the program asks. */
    qccl(qcclCommGetAsyncError(comm, &state), comm);
    if (state != qcclInProgress) qccl(state, comm);

    for (int i = 0; i < COUNT; i++) {
        const int right = size * (size - 1) / 2 + size * (i % 1000);
        wrong += values[i] != (float)right;
    }
    printf("rank %d of %d on %s has %d wrong values\n", rank, size, config.device, wrong);
    qccl(qcclCommDestroy(comm), NULL);
    gpu(GPU(Free)(vector));
    gpu(GPU(FreeHost)(host));
    gpu(GPU(StreamDestroy)(stream));
    return wrong > 0;
}
