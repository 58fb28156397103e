/* A rank on several hosts under limits of its process, from next to nothing to enough: a sentence
 * on all ranks, or success on all. QTEST_FULL=1 tries every limit. */
#include "process_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { peer_timeout_s = 10, fewest = 3, most = 56, most_mib = 180 };

static int hungry;       /* a rank */
static rlim_t allowance; /* beyond what it has: descriptors, or bytes */
static int limited;      /* RLIMIT_ ... */

static rlim_t used(void)
{
    unsigned long pages = 0;
    FILE *file;
    if (limited == RLIMIT_NOFILE) {
        const int lowest_free = dup(0);
        close(lowest_free);
        return (rlim_t)lowest_free;
    }
    file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1) abort();
    fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void live_within_limits(int rank)
{
    struct rlimit limit;
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%d", peer_timeout_s);
    setenv("QCCL_PEER_TIMEOUT", seconds, 1);
    setenv("QCCL_HOSTID", rank < size / 2 ? "first" : "second", 1);
    setenv("QCCL_UCX_DEVICES", "lo", 1);
    setenv("QCCL_SOCKET_IFNAME", "lo", 1);
    if (rank != hungry) return;
    getrlimit(limited, &limit);
    limit.rlim_cur = used() + allowance;
    setrlimit(limited, &limit);
}

static qcclResult_t sum(int rank, qcclComm_t comm, shared_t *noted)
{
    static float values[count];
    qcclResult_t result = qcclSuccess;
    int call;
    (void)rank;
    (void)noted;
    for (call = 0; call < 3 && result == qcclSuccess; call++)
        result = qcclAllReduce(values, values, count, qcclFloat32, qcclSum, comm, NULL);
    return result;
}

/* Whether it was enough. */
static int play_within_limits(const char *part)
{
    const scenario_t scenario = {sum, NULL, 3 * peer_timeout_s, -1, 0, 0, NULL, live_within_limits};
    const double begin = now_s();
    int statuses[size] = {0}, rank, said = 0;
    play(&scenario, statuses);
    if (now_s() - begin > peer_timeout_s + 1) fail_msg("%g s", now_s() - begin);
    for (rank = 0; rank < size; rank++) {
        if (statuses[rank] != 0) fail_msg("rank %d: status %x", rank, (unsigned)statuses[rank]);
        assert_int_equal(shared->ranks[rank].result == qcclSuccess,
                         shared->ranks[0].result == qcclSuccess);
        said += strstr(shared->ranks[rank].sentence, part) != NULL;
    }
    if (shared->ranks[0].result != qcclSuccess && said != size)
        fail_msg("%s", shared->ranks[hungry].sentence);
    return shared->ranks[0].result == qcclSuccess;
}

static void try_limits(int resource, rlim_t first, rlim_t last, rlim_t step, const char *part)
{
    int failures = 0, is_enough = 0;
    limited = resource;
    for (hungry = 0; hungry < size; hungry += size - 1) {
        for (allowance = first; allowance <= last; allowance += step) {
            is_enough = play_within_limits(part);
            failures += !is_enough;
        }
        assert_true(is_enough);
    }
    assert_true(failures > 0);
}

static void descriptors_are_enough_or_missed(void **state)
{
    (void)state;
    try_limits(RLIMIT_NOFILE, fewest, most, getenv("QTEST_FULL") ? 1 : 7, "Too many open files");
}

static void memory_is_enough_or_missed(void **state)
{
    const rlim_t mib = 1 << 20;
    (void)state;
    try_limits(RLIMIT_AS, 0, most_mib * mib, (getenv("QTEST_FULL") ? 2 : 15) * mib, "memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_are_enough_or_missed),
        cmocka_unit_test(memory_is_enough_or_missed),
    };
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
