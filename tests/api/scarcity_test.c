/* Tests ranks that run out of memory or descriptors: the error names the resource, and every rank
 * gets it with the rank that ran out. */
#include "process_kit.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { starving = 2, many = 1 << 20 };

/* Bytes that the starving rank may still map. */
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

/* Memory may run out anywhere in the call: the test grows it from nothing until it suffices. */
static void a_rank_without_memory_is_named(void **state)
{
    const scenario_t scenario = {sum_with_little_memory, NULL, 20, -1, 0, 0, NULL, NULL};
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

enum { fewest = 1, enough = 64 }; /* one is enough to join and report */

static int hungry;         /* a rank */
static rlim_t descriptors; /* that the rank may open */

static void have_few_descriptors(int rank)
{
    struct rlimit limit;
    int lowest_free;
    if (rank != hungry) return;
    lowest_free = dup(0);
    close(lowest_free);
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = (rlim_t)lowest_free + descriptors;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static qcclResult_t meet(int rank, qcclComm_t comm, shared_t *noted)
{
    (void)rank;
    (void)noted;
    return qcclBarrier(comm, NULL);
}

/* Descriptors may run out anywhere in creation. */
static void a_rank_without_descriptors_is_named(void **state)
{
    const scenario_t scenario = {meet, NULL, 20, -1, 0, 0, NULL, have_few_descriptors};
    int failures = 0, rank;
    (void)state;
    for (hungry = 0; hungry < size; hungry += 3) {
        const double begin = now_s();
        char part[32];
        snprintf(part, sizeof part, "rank %d: ", hungry);
        for (descriptors = fewest; descriptors <= enough; descriptors++) {
            int statuses[size] = {0};
            play(&scenario, statuses);
            if (shared->ranks[hungry].result == qcclSuccess) break;
            failures++;
            for (rank = 0; rank < size; rank++) {
                assert_int_not_equal(shared->ranks[rank].created, qcclSuccess);
                assert_says(shared->ranks[rank].sentence, "Too many open files");
                if (rank != hungry) assert_says(shared->ranks[rank].sentence, part);
            }
        }
        assert_true(descriptors < enough);
        assert_true(now_s() - begin < 10);
    }
    assert_true(failures > 0);
}

/* Some containers forbid it. */
static int forbid_process_vm_readv(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {sizeof steps / sizeof steps[0], steps};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0;
}

/* Runs in a child; returns the number of the check that failed, or 0. */
static int free_in_a_container(void)
{
    struct rlimit before, none;
    void *memory = NULL, *other = NULL;
    if (forbid_process_vm_readv()) return 1;
    if (qcclMemAlloc(&memory, 4096) != qcclSuccess) return 2;
    if (qcclMemAlloc(&other, 4096) != qcclSuccess) return 3;
    if (qcclMemFree(memory) != qcclSuccess) return 4;
    if (qcclMemFree(memory) != qcclInvalidArgument) return 5;
    if (getrlimit(RLIMIT_NOFILE, &before) != 0) return 6;
    none = before;
    none.rlim_cur = 0;
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) return 7;
    if (qcclMemFree(other) != qcclSystemError) return 8;
    if (!strstr(qcclGetLastError(NULL), "cannot tell whether")) return 9;
    if (setrlimit(RLIMIT_NOFILE, &before) != 0) return 10;
    return qcclMemFree(other) != qcclSuccess;
}

static void memory_is_freed_in_containers(void **state)
{
    pid_t child;
    int status;
    (void)state;
    child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(free_in_a_container());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_without_memory_is_named),
        cmocka_unit_test(a_rank_without_descriptors_is_named),
        cmocka_unit_test(memory_is_freed_in_containers),
    };
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
