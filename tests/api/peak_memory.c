/* Measures the memory that a call takes beside the caller's buffers, on ranks
 * that are processes. Prints by how much a rank has grown at most, and how much
 * of that it has kept. Fails if a rank grows by more than the vector and 64
 * MiB, if results differ between ranks, or if a call fails.
 *
 *   peak_memory CODEC RANKS BYTES [BYTES ...]
 *
 * The vectors are of float and reduced in place. Each size runs in new
 * processes. */
#include <qccl/qccl.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { most_ranks = 64 };

typedef struct {
    qcclUniqueId id;
    uint64_t hash[most_ranks];
    size_t peak[most_ranks], kept[most_ranks];
    double sum;
} shared_t;

static const size_t beside = (size_t)64 << 20;

/* Returns a value of /proc/self/status in bytes. */
static size_t status_of(const char *name)
{
    char line[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtoul(line + strlen(name) + 1, NULL, 10);
    if (file) fclose(file);
    return kib << 10;
}

static void *zeros(size_t bytes, int flags)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) return memory;
    perror("mmap");
    exit(1);
}

static void check(qcclResult_t result, const char *what)
{
    if (result == qcclSuccess) return;
    fprintf(stderr, "%s: %s\n", what, qcclGetLastError(NULL));
    _exit(1);
}

static uint64_t hash_of(const float *values, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325;
    size_t i;
    for (i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001b3;
    }
    return hash;
}

static void run_rank(shared_t *shared, const char *spec, int ranks, int rank, size_t bytes)
{
    const size_t count = bytes / sizeof(float);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    float *values = zeros(bytes, MAP_PRIVATE);
    size_t before, i;
    qcclComm_t comm;

    check(qcclCodecCreate(&config.codec, spec), "codec");
    for (i = 0; i < count; i++) {
        const uint32_t mixed = (uint32_t)(i * 2654435761U + (uint32_t)rank * 40503U);
        values[i] = (float)(int32_t)mixed / 2147483648.0F;
    }
    before = status_of("VmRSS");
    check(qcclCommInitRank(&comm, ranks, &shared->id, rank), "init");
    check(qcclAllReduceConfig(values, values, count, qcclFloat32, qcclSum, comm, NULL, &config),
          "all-reduce");
    shared->peak[rank] = status_of("VmHWM") - before;
    check(qcclBarrier(comm, NULL), "barrier");
    shared->kept[rank] = status_of("VmRSS") - before;
    shared->hash[rank] = hash_of(values, count);
    if (rank == 0)
        for (i = 0; i < count; i++) shared->sum += (double)values[i] * values[i];
    check(qcclCommDestroy(comm), "destroy");
    check(qcclCodecDestroy(config.codec), "codec");
    _exit(0);
}

static int run_size(const char *spec, int ranks, size_t bytes)
{
    shared_t *shared = zeros(sizeof *shared, MAP_SHARED);
    size_t peak = 0, kept = 0;
    int rank, failed = 0;

    check(qcclGetUniqueId(&shared->id), "id");
    for (rank = 0; rank < ranks; rank++)
        if (fork() == 0) run_rank(shared, spec, ranks, rank, bytes);
    for (rank = 0; rank < ranks; rank++) {
        int status = 0;
        wait(&status);
        failed |= status != 0;
    }
    for (rank = 0; rank < ranks; rank++) {
        failed |= shared->hash[rank] != shared->hash[0];
        if (shared->peak[rank] > peak) peak = shared->peak[rank];
        if (shared->kept[rank] > kept) kept = shared->kept[rank];
    }
    failed |= shared->sum == 0 || peak > bytes + beside || kept > beside;
    printf("%s, %d ranks, %zu bytes: grew by %.1f MiB, kept %.1f MiB: %s\n", spec, ranks, bytes,
           (double)peak / 1048576, (double)kept / 1048576, failed ? "FAILED" : "ok");
    fflush(stdout);
    munmap(shared, sizeof *shared);
    return failed;
}

int main(int argc, char **argv)
{
    int i, failed = 0;
    if (argc < 4 || atoi(argv[2]) < 1 || atoi(argv[2]) > most_ranks) {
        fprintf(stderr, "usage: %s CODEC RANKS BYTES [BYTES ...]\n", argv[0]);
        return 2;
    }
    for (i = 3; i < argc; i++)
        failed |= run_size(argv[1], atoi(argv[2]), strtoull(argv[i], NULL, 10));
    return failed;
}
