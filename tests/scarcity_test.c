/* A rank that runs short of something, memory above all: every rank is told which one and of what. */
#include "process_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { starving = 2, many = 1 << 20 };

/* What the starving rank may still map. */
static size_t spare_bytes;

static size_t mapped_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1) abort();
    fclose(file);
    return pages * 4096;
}

static void use_up_the_heap(void)
{
    size_t bytes;
    for (bytes = 1 << 20; bytes >= 16; bytes /= 2)
        while (malloc(bytes)) {}
}

static qcclResult_t sum_with_little_memory(int rank, qcclComm_t comm, shared_t *noted)
{
    float *values = calloc(many, sizeof *values);
    qcclResult_t result;
    int i;
    (void)noted;
    if (rank == starving) {
        struct rlimit limit;
        getrlimit(RLIMIT_AS, &limit);
        limit.rlim_cur = mapped_bytes() + spare_bytes;
        setrlimit(RLIMIT_AS, &limit);
        if (spare_bytes == 0) use_up_the_heap();
    }
    for (i = 0; i < many; i++) values[i] = (float)i;
    result = qcclAllReduce(values, values, many, qcclFloat32, qcclSum, comm, NULL);
    for (i = 0; i < many && result == qcclSuccess; i++)
        if (values[i] != (float)(size * i)) result = qcclInternalError;
    return result;
}

/* Wherever in the call the memory ends, from nothing at all to enough. */
static void a_rank_without_memory_is_named(void **state)
{
    const scenario_t scenario = {
        sum_with_little_memory, NULL, 20, -1, 0, 0, NULL, NULL};
    int failures = 0;
    (void)state;
    for (spare_bytes = 0; spare_bytes <= 64 << 20;
         spare_bytes = spare_bytes ? 4 * spare_bytes : 4096) {
        int statuses[size] = {0}, rank;
        play(&scenario, statuses);
        for (rank = 0; rank < size; rank++) assert_int_equal(statuses[rank], 0);
        if (shared->ranks[starving].result == qcclSuccess) continue;
        failures++;
        check_all_name(starving, qcclSystemError, "memory");
        assert_int_equal(shared->ranks[starving].result, qcclSystemError);
        for (rank = 0; rank < size; rank++) {
            assert_says(shared->ranks[rank].sentence, "rank 2: all_reduce");
            assert_int_equal(shared->ranks[rank].peer, starving);
        }
    }
    assert_true(failures > 0);
    assert_int_equal(shared->ranks[starving].result, qcclSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_without_memory_is_named),
    };
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
