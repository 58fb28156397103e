/* Tests communicators across fork: ranks on several hosts fork, and their children and
 * grandchildren create communicators of their own while and after the parents use theirs.
 *
 * Usage: forks_test [ALLOCATOR], where ALLOCATOR is the file that must replace libc's malloc.
 * NAMES_ENVIRON makes this a program that has libc's `environ` in its own memory, GLOBAL_UCX one
 * that loads UCX's symbols globally. Each rank loads UCX itself: UCX cannot be used in a child that
 * was forked while another thread was inside one of UCX's hooks. */
#include "tests/api/process_kit.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { rounds = 2, generations = 3, family = 7, sums = 20 };

/* By place in the tree of forks: the ancestor is 0, its children are 1 and 2. */
static struct {
    qcclUniqueId between_hosts[family], on_one_host[family];
} * ids;

static void stand_on_host(const char *name) { setenv("QCCL_HOSTID", name, 1); }

/* Puts two ranks on each of two hosts. The library must leave the program's thread-specific data
 * alone. */
static void prepare_rank(int rank)
{
    pthread_key_t key;
    pthread_key_create(&key, NULL);
    pthread_setspecific(key, &ids);
    stand_on_host(rank < size / 2 ? "first" : "second");
    setenv("QCCL_UCX_DEVICES", "lo", 1);
    setenv("QCCL_SOCKET_IFNAME", "lo", 1);
#ifdef GLOBAL_UCX
    if (!dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
#endif
}

static qcclResult_t sum(qcclComm_t comm, int rank)
{
    static float values[count];
    qcclResult_t result;
    int i;
    for (i = 0; i < count; i++) values[i] = (float)(rank + i % 100);
    result = qcclAllReduce(values, values, count, qcclFloat32, qcclSum, comm, NULL);
    for (i = 0; i < count && result == qcclSuccess; i++)
        if (values[i] != (float)(size * (i % 100) + size * (size - 1) / 2))
            return qcclInternalError;
    return result;
}

static int complain(const char *what, int rank, qcclComm_t comm)
{
    fprintf(stderr, "rank %d, %s: %s\n", rank, what, qcclGetLastError(comm));
    return 1;
}

/* Returns nonzero if a sum fails. */
static int sum_often(qcclComm_t comm, int rank)
{
    int i;
    for (i = 0; i < sums; i++)
        if (sum(comm, rank) != qcclSuccess) return complain("sum", rank, comm);
    return 0;
}

static qcclComm_t join(const qcclUniqueId *id, int rank)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t comm = NULL;
    config.timeout = 20;
    if (qcclCommInitRankConfig(&comm, size, id, rank, &config) != qcclSuccess)
        complain("creation", rank, NULL);
    return comm;
}

static int live(qcclComm_t comm, int rank, int generation, int place);

/* Runs in a child; returns the number of errors. */
static int grow_up(qcclComm_t parents, int rank, int generation, int place)
{
    const char *const host = getenv("QCCL_HOSTID");
    char own[16];
    qcclComm_t comm;
    int wrong = qcclBarrier(parents, NULL) != qcclInvalidUsage;
    snprintf(own, sizeof own, "%s", host);
    comm = join(&ids->between_hosts[place], rank);
    wrong += !comm || live(comm, rank, generation, place);
    wrong += qcclCommDestroy(comm) != qcclSuccess;
    stand_on_host("only");
    comm = join(&ids->on_one_host[place], rank);
    wrong += !comm || sum_often(comm, rank);
    wrong += qcclCommDestroy(comm) != qcclSuccess;
    return wrong;
}

/* Runs in every process of the tree; returns the number of errors in the process and in the
 * processes that it forks. */
static int live(qcclComm_t comm, int rank, int generation, int place)
{
    int round, wrong = sum_often(comm, rank);
    for (round = 0; round < rounds && generation + 1 < generations; round++) {
        const int its_place = rounds * place + 1 + round;
        const pid_t child = fork();
        int status = -1;
        if (child == 0) {
            wrong = grow_up(comm, rank, generation + 1, its_place);
            if (round == 0) _exit(wrong);
            exit(wrong); /* exit handlers do no harm either */
        }
        wrong += sum_often(comm, rank);
        wrong += waitpid(child, &status, 0) != child || status != 0;
        wrong += sum_often(comm, rank);
    }
    return wrong;
}

static qcclResult_t found_family(int rank, qcclComm_t comm, shared_t *noted)
{
    (void)noted;
    return live(comm, rank, 0, 0) ? qcclInternalError : qcclSuccess;
}

static void play_with_family(const scenario_t *scenario)
{
    int statuses[size] = {0}, i;
    ids = mmap(NULL, sizeof *ids, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(ids, MAP_FAILED);
    for (i = 1; i < family; i++) {
        assert_int_equal(qcclGetUniqueId(&ids->between_hosts[i]), qcclSuccess);
        assert_int_equal(qcclGetUniqueId(&ids->on_one_host[i]), qcclSuccess);
    }
    play(scenario, statuses);
    for (i = 0; i < size; i++)
        if (statuses[i] != 0 || shared->ranks[i].result != qcclSuccess)
            fail_msg("rank %d: status %d, result %d: %s", i, statuses[i],
                     (int)shared->ranks[i].result, shared->ranks[i].sentence);
    munmap(ids, sizeof *ids);
}

static void children_and_grandchildren_have_their_own(void **state)
{
    const scenario_t scenario = {found_family, NULL, 20, -1, 0, 0, NULL, prepare_rank};
    (void)state;
    play_with_family(&scenario);
}

/* Each process forks the next one after the end of its communicator, so descriptors get numbers
 * that other descriptors had in the parent. */
static qcclResult_t end_and_fork(int rank, qcclComm_t comm, shared_t *noted)
{
    int generation, status = -1, wrong = sum_often(comm, rank);
    (void)noted;
    for (generation = 1; generation < family; generation++) {
        const pid_t child = fork();
        if (child != 0) {
            wrong += waitpid(child, &status, 0) != child || status != 0;
            wrong += generation == 1 ? sum_often(comm, rank) : 0;
            if (generation == 1) return wrong ? qcclInternalError : qcclSuccess;
            _exit(wrong);
        }
        comm = join(&ids->between_hosts[generation], rank);
        wrong = !comm || sum_often(comm, rank);
        wrong += qcclCommDestroy(comm) != qcclSuccess;
    }
    _exit(wrong);
}

static void every_generation_has_its_own(void **state)
{
    const scenario_t scenario = {end_and_fork, NULL, 20, -1, 0, 0, NULL, prepare_rank};
    (void)state;
    play_with_family(&scenario);
}

#ifdef NAMES_ENVIRON
static void environ_is_in_the_program(void **state)
{
    static const char in_program;
    Dl_info program, variable;
    (void)state;
    assert_int_not_equal(dladdr(&in_program, &program), 0);
    assert_int_not_equal(dladdr((void *)&environ, &variable), 0);
    assert_ptr_equal(variable.dli_fbase, program.dli_fbase);
}
#endif

static int has_malloc(const char *file)
{
    Dl_info its;
    return dladdr(dlsym(RTLD_DEFAULT, "malloc"), &its) != 0 && strcmp(its.dli_fname, file) == 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#ifdef NAMES_ENVIRON
        cmocka_unit_test(environ_is_in_the_program),
#endif
        cmocka_unit_test(children_and_grandchildren_have_their_own),
        cmocka_unit_test(every_generation_has_its_own),
    };
    if (argc > 1 && !has_malloc(argv[1])) {
        fprintf(stderr, "malloc is not that of %s\n", argv[1]);
        return 1;
    }
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
