/* Times MPI's sum of fp32 over all ranks, whichever MPI it is compiled with. Rank 0 prints JSON:
 * {"library", "rows": [{"bytes", "times_us", "wrong"}]}, a time being the slowest rank's.
 *
 * usage: allreduce_mpi DIR/rank%r.npy BYTES:ITERATIONS... */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <mpi.h>

enum {
    samples = 512, /* elements of a result that are checked */
    most_ranks = 256,
    npy_length_at = 8,
    npy_header_at = 10,
};

static const char *vectors[most_ranks]; /* each rank's file */
static size_t vector_bytes;
static int rank, ranks;

static void fail(const char *what, const char *about)
{
    fprintf(stderr, "allreduce_mpi: %s %s\n", what, about);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* The values of a .npy file, whatever type the file names: the caller has written the file. */
static const char *map_vector(const char *pattern, int of_rank)
{
    const char *const place = strstr(pattern, "%r");
    if (!place) fail("no %r in", pattern);
    char path[4096];
    snprintf(path, sizeof(path), "%.*s%d%s", (int)(place - pattern), pattern, of_rank, place + 2);
    const int file = open(path, O_RDONLY);
    struct stat about;
    if (file < 0 || fstat(file, &about) != 0) fail("cannot read", path);
    const unsigned char *const memory =
        mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) fail("cannot map", path);
    close(file);
    const size_t start =
        npy_header_at + memory[npy_length_at] + 256u * (size_t)memory[npy_length_at + 1];
    vector_bytes = (size_t)about.st_size - start;
    return (const char *)memory + start;
}

static int count_wrong(const float *result, size_t count)
{
    int wrong = 0;
    for (size_t i = 0; i < samples && count; i++) {
        const size_t at = i * 2654435761u % count;
        double sum = 0, size = 0;
        for (int r = 0; r < ranks; r++) {
            const double value = ((const float *)vectors[r])[at];
            sum += value;
            size += fabs(value);
        }
        wrong += !(fabs(result[at] - sum) <= 1e-6 * ranks * size);
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return wrong;
}

static void measure(size_t bytes, int iterations, const char *separator)
{
    if (bytes > vector_bytes) fail("the vectors are shorter than what is asked for:", separator);
    const size_t count = bytes / sizeof(float);
    float *const from = malloc(bytes + 1), *const to = malloc(bytes + 1);
    double *const times = calloc((size_t)iterations, sizeof(*times));
    if (!from || !to || !times) fail("no memory for", "the vectors");
    memcpy(from, vectors[rank], bytes);
    memset(to, 0, bytes);
    for (int i = -1; i < iterations; i++) { /* the first warms up */
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = MPI_Wtime();
        MPI_Allreduce(from, to, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        if (i >= 0) times[i] = 1e6 * (MPI_Wtime() - begin);
    }
    MPI_Allreduce(MPI_IN_PLACE, times, iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    const int wrong = count_wrong(to, count);
    if (rank == 0) {
        printf("%s{\"bytes\": %zu, \"wrong\": %d, \"times_us\": [", separator, bytes, wrong);
        for (int i = 0; i < iterations; i++) printf("%s%.3f", i ? ", " : "", times[i]);
        printf("]}");
    }
    free(from);
    free(to);
    free(times);
}

int main(int argc, char **argv)
{
    if (MPI_Init(&argc, &argv) != MPI_SUCCESS) return 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3 || ranks > most_ranks)
        fail("usage:", "allreduce_mpi DIR/rank%r.npy BYTES:ITERATIONS...");
    for (int r = 0; r < ranks; r++) vectors[r] = map_vector(argv[1], r);
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = '\0';
    for (char *c = library; *c; c++)
        if ((unsigned char)*c < ' ' || *c == '"' || *c == '\\') *c = ' ';
    if (rank == 0) printf("{\"library\": \"%s\", \"rows\": [", library);
    for (int i = 2; i < argc; i++) {
        char *rest = NULL;
        const size_t bytes = strtoull(argv[i], &rest, 10);
        const int iterations = *rest == ':' ? atoi(rest + 1) : 0;
        if (iterations < 1) fail("no BYTES:ITERATIONS:", argv[i]);
        measure(bytes, iterations, i > 2 ? ", " : "");
    }
    if (rank == 0) printf("]}\n");
    return MPI_Finalize() != MPI_SUCCESS;
}
