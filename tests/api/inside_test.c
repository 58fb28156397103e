/* Tests which threads may enter a communicator: one thread at a time, of the process that created
 * it, and not from within a callback. */
#include "api_kit.h"
#include "tests/kit/sanitizer.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { size = 2 };

static void a_second_thread_is_refused(void **state)
{
    world_t world = make_world(size);
    qcclErrorInfo_t info;
    waiter_t waiter;
    (void)state;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    start_waiter(&waiter, world.comms[0]);
    assert_int_equal(qcclBarrier(world.comms[0], NULL), qcclInvalidUsage);
    assert_says(qcclGetLastError(NULL), "another thread is inside");
    assert_says(qcclGetLastError(world.comms[0]), "another thread is inside");
    assert_int_equal(qcclGetErrorInfo(world.comms[0], &info), qcclSuccess);
    assert_int_equal(info.code, qcclInvalidUsage);
    assert_int_equal(info.call, 0);
    assert_int_equal(qcclCommDestroy(world.comms[0]), qcclInvalidUsage);
    assert_int_equal(qcclBarrier(world.comms[1], NULL), qcclSuccess);
    check_waiter(&waiter, qcclSuccess, "");
    assert_works(&world);
    end_world(&world);
}

/* A forked child gets an error from every function, and does not disturb the parent. */
static void a_forked_child_is_refused(void **state)
{
    world_t worlds[2];
    qcclStream_t stream = NULL;
    int i;
    (void)state;
    worlds[0] = make_world(size);
    worlds[1] = join_world(size, NULL);
    assert_int_equal(qcclStreamCreate(&stream), qcclSuccess);
    for (i = 0; i < 2; i++) {
        int status = -1;
        const pid_t child = fork();
        if (child == 0) {
            qcclComm_t comm = worlds[i].comms[0];
            float value = 1;
            int wrong = 0;
            wrong += qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comm, NULL) !=
                     qcclInvalidUsage;
            wrong += strstr(qcclGetLastError(NULL), "after fork") == NULL;
            wrong += qcclCommDestroy(comm) != qcclInvalidUsage;
            wrong += qcclCommAbort(comm) != qcclInvalidUsage;
            wrong += qcclCommRevoke(comm) != qcclInvalidUsage;
            wrong += qcclStreamSynchronize(stream) != qcclInvalidUsage;
            wrong += strstr(qcclGetLastError(comm), "after fork") == NULL;
#if !UNDER_THREAD_SANITIZER /* it aborts if a child of several threads starts one */
            wrong += qcclCommInitAll(&comm, 1, NULL) != qcclSuccess; /* its own comm works */
            wrong += qcclBarrier(comm, NULL) != qcclSuccess;
            wrong += qcclCommDestroy(comm) != qcclSuccess;
#endif
            _exit(wrong);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_works(&worlds[i]);
        end_world(&worlds[i]);
    }
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
}

enum { has_other_threads = 77 };

static int threads_of_process(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int threads = 0;
    while (tasks && readdir(tasks)) threads++;
    if (tasks) closedir(tasks);
    return threads - 2; /* without . and .. */
}

/* A single thread would wait for a call that only it could make. The test runs in a child because
 * its own process may have other threads. */
static void one_thread_in_blocking_calls_of_all_ranks(void **state)
{
    int status = -1;
    const pid_t child = fork();
    (void)state;
    if (child == 0) {
        qcclComm_t comms[size];
        qcclStream_t stream = NULL;
        float value = 1, other = 2;
        int wrong = 0;
        if (threads_of_process() > 1) _exit(has_other_threads); /* a sanitizer's threads */
        wrong += qcclCommInitAll(comms, size, NULL) != qcclSuccess;
        wrong += qcclStreamCreate(&stream) != qcclSuccess;
        /* There is no deadlock if the other rank's call is on a stream. */
        wrong +=
            qcclAllReduce(&other, &other, 1, qcclFloat32, qcclSum, comms[1], stream) != qcclSuccess;
        wrong +=
            qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comms[0], NULL) != qcclSuccess;
        wrong += value != 3;
        wrong += qcclBarrier(comms[0], NULL) != qcclInvalidUsage;
        wrong += strstr(qcclGetLastError(NULL), "need a thread each") == NULL;
        wrong += qcclCommDestroy(comms[0]) != qcclSuccess;
        wrong += qcclCommDestroy(comms[1]) != qcclSuccess;
        wrong += qcclStreamDestroy(stream) != qcclSuccess;
        _exit(wrong);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == has_other_threads) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The same for a message: before the ranks have a channel, and when they have one. */
static int wrong_for_a_message(int has_channel)
{
    qcclComm_t comms[size];
    qcclResult_t failure = qcclSuccess;
    float value = 1, other = 2;
    int wrong = 0;
    wrong += qcclCommInitAll(comms, size, NULL) != qcclSuccess;
    if (has_channel) {
        wrong += qcclGroupStart() != qcclSuccess;
        wrong += qcclSend(&value, 1, qcclFloat32, 1, comms[0], NULL) != qcclSuccess;
        wrong += qcclRecv(&other, 1, qcclFloat32, 0, comms[1], NULL) != qcclSuccess;
        wrong += qcclGroupEnd() != qcclSuccess || other != 1;
        /* A short message needs no receiver yet. */
        wrong += qcclSend(&value, 1, qcclFloat32, 1, comms[0], NULL) != qcclSuccess;
        wrong += qcclRecv(&other, 1, qcclFloat32, 0, comms[1], NULL) != qcclSuccess;
    }
    wrong += qcclRecv(&value, 1, qcclFloat32, 1, comms[0], NULL) != qcclInvalidUsage;
    wrong += strstr(qcclGetLastError(NULL), "need a thread each") == NULL;
    wrong += strstr(qcclGetLastError(NULL), "rank 1") == NULL;
    wrong += qcclCommGetAsyncError(comms[1], &failure) != qcclSuccess;
    wrong += failure != qcclInvalidUsage;
    wrong += qcclCommDestroy(comms[0]) != qcclSuccess;
    wrong += qcclCommDestroy(comms[1]) != qcclSuccess;
    return wrong;
}

static void one_thread_that_waits_for_a_message(void **state)
{
    int has_channel;
    (void)state;
    for (has_channel = 0; has_channel < 2; has_channel++) {
        int status = -1;
        const pid_t child = fork();
        if (child == 0) {
            if (threads_of_process() > 1) _exit(has_other_threads);
            _exit(wrong_for_a_message(has_channel));
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == has_other_threads) skip();
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

typedef struct {
    qcclComm_t comm;
    atomic_int calls;
    qcclResult_t collective, destroy, abort, finalize;
    char refused[2][sentence_bytes];
} idler_t;

static void misuse(void *context)
{
    idler_t *idler = context;
    if (idler->calls++ > 0 || !idler->comm) return;
    idler->collective = qcclBarrier(idler->comm, NULL);
    strcpy(idler->refused[0], qcclGetLastError(idler->comm));
    idler->destroy = qcclCommDestroy(idler->comm);
    strcpy(idler->refused[1], qcclGetLastError(idler->comm));
    idler->abort = qcclCommAbort(idler->comm);
    idler->finalize = qcclCommFinalize(idler->comm);
}

static void assert_all_refused(const idler_t *idler)
{
    assert_true(idler->calls > 0);
    assert_int_equal(idler->collective, qcclInvalidUsage);
    assert_int_equal(idler->destroy, qcclInvalidUsage);
    assert_int_equal(idler->abort, qcclInvalidUsage);
    assert_int_equal(idler->finalize, qcclInvalidUsage);
}

/* The idle function is called in long waits and must not use or destroy its communicator. */
static void the_idle_function(void **state)
{
    qcclConfig_t configs[size] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    idler_t idler;
    world_t world;
    waiter_t waiter;
    (void)state;
    memset(&idler, 0, sizeof idler);
    configs[0].idle.function = misuse;
    configs[0].idle.context = &idler;
    world = join_world(size, configs);
    idler.calls = 0;
    idler.comm = world.comms[0];
    start_waiter(&waiter, world.comms[0]);
    while (atomic_load(&idler.calls) == 0) sleep_ms(1);
    assert_int_equal(qcclBarrier(world.comms[1], NULL), qcclSuccess);
    check_waiter(&waiter, qcclSuccess, "");
    assert_all_refused(&idler);
    assert_says(idler.refused[0], "inside the communicator already");
    assert_says(idler.refused[1], "cannot be ended from inside");
    assert_works(&world);
    end_world(&world);
}

static qcclResult_t exchange(int rank, qcclComm_t comm, void *context)
{
    float value = 1;
    (void)context;
    return rank == 0 ? qcclRecv(&value, 1, qcclFloat32, 1, comm, NULL)
                     : qcclSend(&value, 1, qcclFloat32, 0, comm, NULL);
}

static void end_inside(void *context)
{
    idler_t *idler = context;
    if (!idler->comm || idler->calls > 0) return;
    idler->destroy = qcclCommDestroy(idler->comm);
    idler->abort = qcclCommAbort(idler->comm);
    idler->calls = 1;
}

/* Nor may it while a message waits on a stream. */
static void the_idle_function_of_a_message(void **state)
{
    qcclConfig_t configs[size] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    qcclStream_t stream = NULL;
    float sent = 1, received = 0;
    outcome_t outcome;
    idler_t idler;
    world_t world;
    (void)state;
    memset(&idler, 0, sizeof idler);
    configs[0].idle.function = end_inside;
    configs[0].idle.context = &idler;
    world = join_world(size, configs);
    outcome = on_every_rank(&world, exchange, NULL);
    assert_all_succeed(&outcome, size);
    idler.comm = world.comms[0];
    assert_int_equal(qcclStreamCreate(&stream), qcclSuccess);
    assert_int_equal(qcclRecv(&received, 1, qcclFloat32, 1, world.comms[0], stream), qcclSuccess);
    while (idler.calls == 0) sleep_ms(1);
    assert_int_equal(qcclSend(&sent, 1, qcclFloat32, 0, world.comms[1], NULL), qcclSuccess);
    assert_int_equal(qcclStreamSynchronize(stream), qcclSuccess);
    assert_int_equal(idler.destroy, qcclInvalidUsage);
    assert_int_equal(idler.abort, qcclInvalidUsage);
    assert_true(received == 1);
    assert_works(&world);
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
    end_world(&world);
}

static void misuse_in_log(int32_t level, const char *line, void *context)
{
    (void)level;
    (void)line;
    misuse(context);
}

/* Nor may the log function, on whichever thread it is called. */
static void the_log_function(void **state)
{
    qcclStream_t streams[2] = {NULL, NULL};
    int i;
    (void)state;
    assert_int_equal(qcclStreamCreate(&streams[1]), qcclSuccess);
    for (i = 0; i < 2; i++) {
        qcclConfig_t configs[size] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
        idler_t idler;
        world_t world;
        waiter_t waiter;
        memset(&idler, 0, sizeof idler);
        configs[0].log.function = misuse_in_log;
        configs[0].log.context = &idler;
        setenv("QCCL_DEBUG", "trace", 1);
        world = join_world(size, configs);
        unsetenv("QCCL_DEBUG");
        idler.calls = 0;
        idler.comm = world.comms[0];
        start_waiter(&waiter, world.comms[1]);
        assert_int_equal(qcclBarrier(world.comms[0], streams[i]), qcclSuccess);
        assert_int_equal(qcclStreamSynchronize(streams[1]), qcclSuccess);
        check_waiter(&waiter, qcclSuccess, "");
        assert_all_refused(&idler);
        assert_works(&world);
        end_world(&world);
    }
    assert_int_equal(qcclStreamDestroy(streams[1]), qcclSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_in_blocking_calls_of_all_ranks),
        cmocka_unit_test(one_thread_that_waits_for_a_message),
        cmocka_unit_test(a_second_thread_is_refused),
        cmocka_unit_test(a_forked_child_is_refused),
        cmocka_unit_test(the_idle_function),
        cmocka_unit_test(the_idle_function_of_a_message),
        cmocka_unit_test(the_log_function),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
