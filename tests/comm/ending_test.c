/* Tests the end of communicators (revoke, abort, destroy, finalize, shrink)
 * while a thread is inside a call or work is enqueued, and the error that each
 * rank sees afterwards. */
#include "tests/api/api_kit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { size = 2 };

static void revoked_from_another_thread(void **state)
{
    world_t world = make_world(size);
    qcclResult_t async = qcclSuccess;
    waiter_t waiter;
    int rank;
    (void)state;
    start_waiter(&waiter, world.comms[0]);
    assert_int_equal(qcclCommRevoke(world.comms[0]), qcclSuccess);
    check_waiter(&waiter, qcclRevoked, "rank 0 revoked the communicator");
    for (rank = 0; rank < size; rank++) {
        assert_int_equal(qcclCommGetAsyncError(world.comms[rank], &async), qcclSuccess);
        assert_int_equal(async, qcclRevoked);
        assert_says(qcclGetLastError(world.comms[rank]), "rank 0 revoked the communicator");
        assert_int_equal(qcclBarrier(world.comms[rank], NULL), qcclRevoked);
        assert_int_equal(qcclCommFinalize(world.comms[rank]), qcclRevoked);
        assert_int_equal(qcclCommRevoke(world.comms[rank]), qcclSuccess);
    }
    end_world(&world);
}

static void revoked_by_another_rank(void **state)
{
    world_t world = join_world(size, NULL);
    waiter_t waiter;
    (void)state;
    start_waiter(&waiter, world.comms[0]);
    assert_int_equal(qcclCommRevoke(world.comms[1]), qcclSuccess);
    check_waiter(&waiter, qcclRevoked, "rank 1 revoked the communicator");
    end_world(&world);
}

static void aborted_under_a_thread(void **state)
{
    world_t world = make_world(size);
    waiter_t waiter;
    (void)state;
    start_waiter(&waiter, world.comms[0]);
    assert_int_equal(qcclCommAbort(world.comms[0]), qcclSuccess);
    check_waiter(&waiter, qcclRevoked, "rank 0 aborted the communicator");
    assert_int_equal(qcclBarrier(world.comms[1], NULL), qcclRevoked);
    assert_int_equal(qcclCommAbort(world.comms[1]), qcclSuccess);
}

/* A revocation ends a destroy that waits for a late rank; the destroy succeeds,
 * like one that is called after the revocation. */
static void revoked_under_a_destroy(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        world_t world = i == 0 ? make_world(size) : join_world(size, NULL);
        float value = 1;
        waiter_t waiter;
        assert_int_equal(qcclBroadcast(&value, &value, 1, qcclFloat32, 0, world.comms[0], NULL),
                         qcclSuccess);
        start_waiter_in(&waiter, world.comms[0], qcclCommDestroy);
        if (i == 2)
            assert_int_equal(qcclCommAbort(world.comms[0]), qcclInvalidUsage);
        else
            assert_int_equal(qcclCommRevoke(world.comms[1]), qcclSuccess);
        check_waiter(&waiter, qcclSuccess, "");
        assert_int_equal(qcclBarrier(world.comms[1], NULL), qcclRevoked);
        assert_int_equal(qcclCommDestroy(world.comms[1]), qcclSuccess);
    }
}

typedef struct {
    qcclComm_t comm;
    atomic_int asked;
    qcclResult_t aborted, shrunk;
} insider_t;

static void end_from_inside(void *context)
{
    insider_t *insider = context;
    qcclComm_t made = NULL;
    if (atomic_load(&insider->asked)) return;
    insider->aborted = qcclCommAbort(insider->comm);
    insider->shrunk = qcclCommShrink(insider->comm, NULL, 0, &made, NULL, QCCL_SHRINK_ABORT);
    atomic_store(&insider->asked, 1);
}

/* The idle function of a destroy must not end the communicator; such calls are
 * refused before they do anything. */
static void ended_from_inside_a_destroy(void **state)
{
    qcclConfig_t configs[size] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    insider_t insider = {.comm = NULL};
    float value = 1;
    waiter_t waiter;
    world_t world;
    (void)state;
    configs[0].idle.function = end_from_inside;
    configs[0].idle.context = &insider;
    world = join_world(size, configs);
    atomic_store(&insider.asked, 1); /* not before the destroy */
    assert_int_equal(qcclBroadcast(&value, &value, 1, qcclFloat32, 0, world.comms[0], NULL),
                     qcclSuccess);
    insider.comm = world.comms[0];
    atomic_store(&insider.asked, 0);
    start_waiter_in(&waiter, world.comms[0], qcclCommDestroy);
    while (!atomic_load(&insider.asked)) sleep_ms(1);
    assert_int_equal(qcclBroadcast(&value, &value, 1, qcclFloat32, 0, world.comms[1], NULL),
                     qcclSuccess);
    check_waiter(&waiter, qcclSuccess, "");
    assert_int_equal(insider.aborted, qcclInvalidUsage);
    assert_int_equal(insider.shrunk, qcclInvalidUsage);
    assert_int_equal(qcclCommDestroy(world.comms[1]), qcclSuccess);
}

static qcclResult_t from_itself(int rank, qcclComm_t comm, void *context)
{
    float value = (float)rank;
    (void)context;
    return qcclBroadcast(&value, &value, 1, qcclFloat32, rank, comm, NULL);
}

static qcclResult_t shrink_and_abort(int rank, qcclComm_t comm, void *context)
{
    qcclComm_t made = NULL;
    qcclResult_t result;
    (void)rank;
    (void)context;
    result = qcclCommShrink(comm, NULL, 0, &made, NULL, QCCL_SHRINK_ABORT);
    qcclCommDestroy(made);
    return result;
}

/* Ranks that made different calls get a mismatch even though the communicator
 * has been revoked. */
static void shrunk_after_different_calls(void **state)
{
    world_t world = make_world(2);
    outcome_t outcome = on_every_rank(&world, from_itself, NULL);
    (void)state;
    assert_all_succeed(&outcome, 2);
    outcome = on_every_rank(&world, shrink_and_abort, NULL);
    assert_all_say(&outcome, 2, qcclMismatch, "rank 0 and rank 1 made different calls");
    outcome = on_every_rank(&world, shrink_and_abort, NULL);
    assert_all_succeed(&outcome, 2);
    end_world(&world);
}

static void aborted_with_work_enqueued(void **state)
{
    world_t world = make_world(size);
    qcclStream_t stream = NULL;
    float value = 1;
    int i;
    (void)state;
    assert_int_equal(qcclStreamCreate(&stream), qcclSuccess);
    for (i = 0; i < 3; i++)
        assert_int_equal(
            qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, world.comms[0], stream),
            qcclSuccess);
    assert_int_equal(qcclCommAbort(world.comms[0]), qcclSuccess);
    assert_int_equal(qcclStreamSynchronize(stream), qcclRevoked);
    assert_says(qcclGetLastError(NULL), "rank 0 aborted");
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
    assert_int_equal(qcclCommDestroy(world.comms[1]), qcclSuccess);
}

static void hold(void *context)
{
    while (atomic_load((atomic_int *)context)) sleep_ms(1);
}

/* The communicator's work waits in a stream behind that of another
 * communicator, and a thread waits in finalize. */
static void aborted_while_its_work_is_far_back(void **state)
{
    atomic_int is_held;
    qcclConfig_t configs[size] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    world_t world = make_world(size), other;
    qcclStream_t stream = NULL;
    waiter_t waiter;
    (void)state;
    atomic_init(&is_held, 0);
    configs[0].idle.function = hold;
    configs[0].idle.context = &is_held;
    other = join_world(size, configs);
    atomic_store(&is_held, 1);
    assert_int_equal(qcclStreamCreate(&stream), qcclSuccess);
    assert_int_equal(qcclBarrier(other.comms[0], stream), qcclSuccess);
    assert_int_equal(qcclBarrier(world.comms[0], stream), qcclSuccess);
    start_waiter_in(&waiter, world.comms[0], qcclCommFinalize);
    assert_int_equal(qcclCommAbort(world.comms[0]), qcclSuccess);
    check_waiter(&waiter, qcclRevoked, "");
    atomic_store(&is_held, 0);
    assert_int_equal(qcclBarrier(other.comms[1], NULL), qcclSuccess);
    assert_int_equal(qcclStreamSynchronize(stream), qcclRevoked);
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
    assert_int_equal(qcclCommDestroy(world.comms[1]), qcclSuccess);
    end_world(&other);
}

/* A rank that still waits gets an error that names the rank that has left. */
static void a_rank_that_leaves_is_named(void **state)
{
    world_t worlds[2];
    int i;
    (void)state;
    worlds[0] = make_world(size);
    worlds[1] = join_world(size, NULL);
    for (i = 0; i < 2; i++) {
        waiter_t waiter;
        start_waiter(&waiter, worlds[i].comms[0]);
        assert_int_equal(qcclCommDestroy(worlds[i].comms[1]), qcclSuccess);
        check_waiter(&waiter, qcclPeerLost, "rank 1");
        assert_int_equal(qcclCommDestroy(worlds[i].comms[0]), qcclSuccess);
    }
}

/* A rank that is done may leave while others still read its messages. */
static qcclResult_t reduce_and_leave(int rank, qcclComm_t comm, void *context)
{
    const size_t count = 300000;
    float *values = malloc(count * sizeof *values);
    qcclResult_t result;
    size_t i;
    for (i = 0; i < count; i++) values[i] = (float)(rank + 1);
    result = qcclAllReduce(values, values, count, qcclFloat32, qcclSum, comm, NULL);
    if (result == qcclSuccess) result = qcclCommDestroy(comm);
    for (i = 0; i < count; i++)
        if (values[i] != 3) (*(int *)context)++;
    free(values);
    return result;
}

static void leaving_at_once_disturbs_nobody(void **state)
{
    int i, wrong = 0;
    (void)state;
    for (i = 0; i < 20; i++) {
        world_t world = i % 2 ? make_world(size) : join_world(size, NULL);
        const outcome_t outcome = on_every_rank(&world, reduce_and_leave, &wrong);
        assert_all_succeed(&outcome, size);
        assert_int_equal(wrong, 0);
    }
}

/* The wait is bounded by the call's timeout or by the communicator's, and the
 * missing rank is named. */
static void a_rank_that_does_not_come_is_named(void **state)
{
    qcclConfig_t configs[size] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    world_t world = join_world(size, NULL);
    double begin;
    (void)state;
    config.timeout = 0.2;
    config.tag = 77;
    begin = now_s();
    assert_int_equal(qcclBarrierConfig(world.comms[0], NULL, &config), qcclTimeout);
    assert_true(now_s() - begin < 10);
    assert_says(qcclGetLastError(NULL), "rank 1 did not come to barrier, call 1");
    {
        qcclErrorInfo_t info;
        memset(&info, 0, sizeof info);
        info.size = sizeof info;
        assert_int_equal(qcclGetErrorInfo(world.comms[0], &info), qcclSuccess);
        assert_int_equal(info.code, qcclTimeout);
        assert_int_equal(info.peer, 1);
        assert_int_equal(info.collective, 4);
        assert_int_equal(info.call, 1);
        assert_int_equal(info.tag, 77);
    }
    end_world(&world);

    configs[1].timeout = 1;
    world = join_world(size, configs);
    assert_int_equal(qcclBarrier(world.comms[1], NULL), qcclTimeout);
    assert_says(qcclGetLastError(NULL), "rank 0 did not come");
    end_world(&world);
}

/* If a rank makes no call, its last error is the communicator's failure that
 * another rank causes. A later refusal replaces it. */
static void a_failure_from_outside_follows_a_refusal(void **state)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    world_t world = join_world(size, NULL);
    const qcclComm_t idle = world.comms[1];
    qcclResult_t result = qcclSuccess;
    int tries;
    (void)state;
    assert_int_equal(qcclBroadcast(NULL, NULL, 0, qcclFloat32, 77, idle, NULL),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(idle), "root is 77");
    config.timeout = 0.2;
    assert_int_equal(qcclBarrierConfig(world.comms[0], NULL, &config), qcclTimeout);
    for (tries = 0; result == qcclSuccess && tries < 1000; tries++) {
        assert_int_equal(qcclCommGetAsyncError(idle, &result), qcclSuccess);
        sleep_ms(10);
    }
    assert_int_equal(result, qcclTimeout);
    assert_says(qcclGetLastError(idle), "rank 1 did not come to barrier, call 1");

    assert_int_equal(qcclBroadcast(NULL, NULL, 0, qcclFloat32, 78, idle, NULL),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(idle), "root is 78");
    assert_int_equal(qcclBarrier(idle, NULL), qcclTimeout);
    assert_says(qcclGetLastError(idle), "rank 1 did not come to barrier, call 1");
    end_world(&world);
}

static void assert_last_error(qcclComm_t comm, qcclResult_t code, const char *sentence)
{
    qcclErrorInfo_t info = {.size = sizeof info};
    assert_says(qcclGetLastError(comm), sentence);
    assert_int_equal(strlen(qcclGetLastError(comm)) > 0, code != qcclSuccess);
    assert_int_equal(qcclGetErrorInfo(comm, &info), qcclSuccess);
    assert_int_equal(info.code, code);
}

/* A call that succeeds clears an earlier refusal from the communicator's last
 * error. Queries do not, because error handlers use them. The thread's last
 * error stays, like errno. */
static void a_refusal_is_over_when_a_call_succeeds(void **state)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    world_t world = join_world(size, NULL);
    const qcclComm_t comm = world.comms[1];
    qcclResult_t async = qcclInternalError;
    char text[4096];
    size_t bytes = sizeof text;
    int rank = -1;
    (void)state;
    assert_int_equal(qcclBroadcast(NULL, NULL, 0, qcclFloat32, 77, comm, NULL),
                     qcclInvalidArgument);
    assert_int_equal(qcclCommUserRank(comm, &rank), qcclSuccess);
    assert_int_equal(qcclCommGetAsyncError(comm, &async), qcclSuccess);
    assert_int_equal(qcclExplain(comm, "all_reduce bytes=4", text, &bytes), qcclSuccess);
    assert_last_error(comm, qcclInvalidArgument, "root is 77");
    assert_int_equal(qcclExplain(comm, "all_reduces", text, &bytes), qcclInvalidArgument);
    assert_last_error(comm, qcclInvalidArgument, "all_reduces");
    assert_int_equal(qcclCommFinalize(comm), qcclSuccess);
    assert_last_error(comm, qcclSuccess, "");
    assert_says(qcclGetLastError(NULL), "all_reduces");

    assert_int_equal(qcclBroadcast(NULL, NULL, 0, qcclFloat32, 78, comm, NULL),
                     qcclInvalidArgument);
    assert_works(&world);
    assert_last_error(comm, qcclSuccess, "");

    config.timeout = 0.2;
    assert_int_equal(qcclBarrierConfig(comm, NULL, &config), qcclTimeout);
    assert_int_equal(qcclBroadcast(NULL, NULL, 0, qcclFloat32, 79, comm, NULL),
                     qcclInvalidArgument);
    assert_last_error(comm, qcclInvalidArgument, "root is 79");
    assert_int_equal(qcclCommDeregister(comm, NULL), qcclSuccess); /* a failure outlasts success */
    assert_last_error(comm, qcclTimeout, "rank 0 did not come to barrier");
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(revoked_from_another_thread),
        cmocka_unit_test(revoked_by_another_rank),
        cmocka_unit_test(aborted_under_a_thread),
        cmocka_unit_test(revoked_under_a_destroy),
        cmocka_unit_test(ended_from_inside_a_destroy),
        cmocka_unit_test(shrunk_after_different_calls),
        cmocka_unit_test(aborted_with_work_enqueued),
        cmocka_unit_test(aborted_while_its_work_is_far_back),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(leaving_at_once_disturbs_nobody),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(a_failure_from_outside_follows_a_refusal),
        cmocka_unit_test(a_refusal_is_over_when_a_call_succeeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
