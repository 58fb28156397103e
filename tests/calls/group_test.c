/* Tests groups: messages in any order of posting, calls on several communicators of one thread,
 * collectives beside messages, streams, and what is refused or fails. */
#include "tests/api/api_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { size = 4, large = 300001, small = 100 };

static float value(int from, int to, size_t i)
{
    return (float)((from * 8 + to) * 1000) + (float)(i % 997);
}

typedef struct {
    size_t count;
    qcclStream_t stream;
    float *send[size], *recv[size]; /* by peer */
} messages_t;

static messages_t *new_messages(int rank, size_t count)
{
    messages_t *moved = calloc(1, sizeof *moved);
    int peer;
    size_t i;
    moved->count = count;
    for (peer = 0; peer < size; peer++) {
        moved->send[peer] = malloc(count * sizeof(float));
        moved->recv[peer] = calloc(count, sizeof(float));
        for (i = 0; i < count; i++) moved->send[peer][i] = value(rank, peer, i);
    }
    return moved;
}

/* Frees them, and returns whether all that other ranks have sent is there. */
static int end_messages(messages_t *moved, int rank)
{
    int peer, is_right = 1;
    size_t i;
    for (peer = 0; peer < size; peer++) {
        for (i = 0; i < moved->count && peer != rank; i++)
            if (moved->recv[peer][i] != value(peer, rank, i)) is_right = 0;
        free(moved->send[peer]);
        free(moved->recv[peer]);
    }
    free(moved);
    return is_right;
}

static qcclResult_t post(messages_t *moved, int rank, int sends, qcclComm_t comm)
{
    qcclResult_t result = qcclSuccess;
    int peer;
    for (peer = 0; peer < size && result == qcclSuccess; peer++) {
        if (peer == rank) continue;
        result =
            sends
                ? qcclSend(moved->send[peer], moved->count, qcclFloat32, peer, comm, moved->stream)
                : qcclRecv(moved->recv[peer], moved->count, qcclFloat32, peer, comm, moved->stream);
    }
    return result;
}

/* All ranks post all sends first, or all receives; half of them in the other order. */
static qcclResult_t everyone_to_everyone(int rank, qcclComm_t comm, void *context)
{
    const int kind = *(const int *)context; /* bit 0: sends first; 1: ranks differ; 2: stream */
    messages_t *moved = new_messages(rank, kind & 1 ? large : small);
    const int sends_first = (kind & 1) ^ (kind & 2 ? rank & 1 : 0);
    qcclResult_t result = kind & 4 ? qcclStreamCreate(&moved->stream) : qcclSuccess, ended;
    qcclStream_t stream = moved->stream;
    int round, is_right = 1;
    for (round = 0; round < 3 && result == qcclSuccess; round++) {
        int sum = 1;
        result = qcclGroupStart();
        if (result == qcclSuccess) result = post(moved, rank, sends_first, comm);
        if (result == qcclSuccess)
            result = qcclAllReduce(&sum, &sum, 1, qcclInt32, qcclSum, comm, NULL);
        if (result == qcclSuccess) result = post(moved, rank, !sends_first, comm);
        ended = qcclGroupEnd();
        if (result == qcclSuccess) result = ended;
        if (result == qcclSuccess && stream) result = qcclStreamSynchronize(stream);
        if (result == qcclSuccess && sum != size) result = qcclInternalError;
    }
    qcclStreamDestroy(stream);
    is_right = end_messages(moved, rank);
    return result == qcclSuccess && !is_right ? qcclInternalError : result;
}

static void messages_come_in_any_order(void **state)
{
    int kind;
    (void)state;
    for (kind = 0; kind < 8; kind++) {
        world_t world = kind & 1 ? join_world(size, NULL) : make_world(size);
        const outcome_t outcome = on_every_rank(&world, everyone_to_everyone, &kind);
        assert_all_succeed(&outcome, size);
        assert_works(&world);
        end_world(&world);
    }
}

/* In each round another rank comes so late that the messages of the others, which have begun, wait
 * on streams. Each channel carries a long message, a short one and another long one. */
static qcclResult_t one_rank_is_late(int rank, qcclComm_t comm, void *context)
{
    enum { messages = 3 };
    messages_t *moved[messages];
    qcclResult_t result = qcclSuccess, ended;
    int round, i, is_right = 1;
    (void)context;
    for (round = 0; round < size && result == qcclSuccess; round++) {
        for (i = 0; i < messages; i++) moved[i] = new_messages(rank, i == 1 ? small : large);
        if (rank == round) sleep_ms(20);
        result = qcclGroupStart();
        for (i = 0; i < 2 * messages && result == qcclSuccess; i++)
            result = post(moved[i / 2], rank, (i + rank) & 1, comm);
        ended = qcclGroupEnd();
        if (result == qcclSuccess) result = ended;
        for (i = 0; i < messages; i++) is_right &= end_messages(moved[i], rank);
    }
    return result == qcclSuccess && !is_right ? qcclInternalError : result;
}

static void messages_wait_for_a_late_rank(void **state)
{
    int apart;
    (void)state;
    for (apart = 0; apart < 2; apart++) {
        world_t world = apart ? join_world(size, NULL) : make_world(size);
        const outcome_t outcome = on_every_rank(&world, one_rank_is_late, NULL);
        assert_all_succeed(&outcome, size);
        assert_works(&world);
        end_world(&world);
    }
}

/* Each call has the same config, which holds something else at the group's end, and so does the
 * text that the config names. */
static qcclResult_t one_config_for_all(int rank, qcclComm_t comm, void *context)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int sent = rank, got = -1, sum = 1;
    char algorithm[] = "oneshot";
    qcclResult_t result = qcclGroupStart(), ended;
    (void)context;
    config.algorithm = algorithm;
    if (result == qcclSuccess)
        result = qcclSendConfig(&sent, 1, qcclInt32, next, comm, NULL, &config);
    if (result == qcclSuccess)
        result = qcclRecvConfig(&got, 1, qcclInt32, before, comm, NULL, &config);
    strcpy(algorithm, "ring"); /* which messages do not have */
    if (result == qcclSuccess)
        result = qcclAllReduceConfig(&sum, &sum, 1, qcclInt32, qcclSum, comm, NULL, &config);
    config.size = 0;
    algorithm[0] = '\0';
    ended = qcclGroupEnd();
    if (result == qcclSuccess) result = ended;
    return result == qcclSuccess && (got != before || sum != size) ? qcclInternalError : result;
}

static void a_config_is_read_in_its_call(void **state)
{
    world_t world = make_world(size);
    const outcome_t outcome = on_every_rank(&world, one_config_for_all, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
    end_world(&world);
}

/* One thread makes the calls of all ranks. */
static void one_thread_serves_several_communicators(void **state)
{
    world_t world = make_world(size);
    int sums[size], rank, round;
    (void)state;
    for (round = 0; round < 3; round++) {
        assert_int_equal(qcclGroupStart(), qcclSuccess);
        for (rank = 0; rank < size; rank++) {
            sums[rank] = rank + round;
            assert_int_equal(qcclAllReduce(&sums[rank], &sums[rank], 1, qcclInt32, qcclSum,
                                           world.comms[rank], NULL),
                             qcclSuccess);
            assert_int_equal(qcclBarrier(world.comms[rank], NULL), qcclSuccess);
        }
        assert_int_equal(qcclGroupEnd(), qcclSuccess);
        for (rank = 0; rank < size; rank++) assert_int_equal(sums[rank], 6 + size * round);
    }
    /* Messages between ranks of one thread, too: each rank sends to the next one. */
    for (round = 0; round < 3; round++) {
        int got[size] = {0};
        assert_int_equal(qcclGroupStart(), qcclSuccess);
        for (rank = 0; rank < size; rank++) {
            sums[rank] = 10 * rank + round;
            assert_int_equal(
                qcclSend(&sums[rank], 1, qcclInt32, (rank + 1) % size, world.comms[rank], NULL),
                qcclSuccess);
            assert_int_equal(qcclRecv(&got[rank], 1, qcclInt32, (rank + size - 1) % size,
                                      world.comms[rank], NULL),
                             qcclSuccess);
        }
        assert_int_equal(qcclGroupEnd(), qcclSuccess);
        for (rank = 0; rank < size; rank++)
            assert_int_equal(got[rank], 10 * ((rank + size - 1) % size) + round);
    }
    end_world(&world);
}

static void refused(qcclResult_t result, qcclResult_t code, const char *part)
{
    assert_int_equal(result, code);
    assert_says(qcclGetLastError(NULL), part);
}

enum { pair = 2 };
typedef struct {
    qcclComm_t others[pair]; /* of another communicator */
    int has_blocking;        /* calls, too */
} two_worlds_t;

/* The calls of both communicators go to one stream. */
static qcclResult_t sum_in_both(int rank, qcclComm_t comm, void *context)
{
    const two_worlds_t *const worlds = context;
    const qcclComm_t comms[2] = {comm, worlds->others[rank]};
    int sums[4] = {1, 1, 1, 1}, i;
    qcclStream_t stream = NULL;
    qcclResult_t result = qcclStreamCreate(&stream), ended;
    if (result == qcclSuccess) result = qcclGroupStart();
    for (i = 0; i < 4 && result == qcclSuccess; i++) {
        const int blocks = worlds->has_blocking && i < 2;
        result = qcclAllReduce(&sums[i], &sums[i], 1, qcclInt32, qcclSum, comms[i % 2],
                               blocks ? NULL : stream);
    }
    ended = qcclGroupEnd();
    if (result == qcclSuccess) result = ended;
    if (result == qcclSuccess) result = qcclStreamSynchronize(stream);
    qcclStreamDestroy(stream);
    for (i = 0; i < 4 && result == qcclSuccess; i++)
        if (sums[i] != pair) result = qcclInternalError;
    return result;
}

static qcclComm_t begin_rank(const qcclUniqueId *id, int rank)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t comm = NULL;
    config.nonblocking = 1;
    config.timeout = 10;
    assert_int_equal(qcclCommInitRankConfig(&comm, pair, id, rank, &config), qcclInProgress);
    return comm;
}

/* The numbers of the two ranks' handles stand in opposite orders. In a program that has ended none,
 * numbers grow. */
static void a_stream_has_the_order_of_the_calls(void **state)
{
    world_t world;
    two_worlds_t worlds;
    qcclUniqueId ids[2];
    int rank, i, round;
    (void)state;
    world.size = pair;
    for (i = 0; i < 2; i++) assert_int_equal(qcclGetUniqueId(&ids[i]), qcclSuccess);
    for (rank = 0; rank < pair; rank++)
        for (i = 0; i < 2; i++) {
            const int other = i == rank;
            qcclComm_t *const comms = other ? worlds.others : world.comms;
            comms[rank] = begin_rank(&ids[other], rank);
        }
    assert_true((world.comms[0] < worlds.others[0]) != (world.comms[1] < worlds.others[1]));
    for (rank = 0; rank < pair; rank++)
        for (i = 0; i < 2; i++) {
            qcclResult_t made = qcclInProgress;
            while (made == qcclInProgress)
                qcclCommGetAsyncError(i ? worlds.others[rank] : world.comms[rank], &made);
            assert_int_equal(made, qcclSuccess);
        }
    for (round = 0; round < 20; round++) {
        worlds.has_blocking = round % 2;
        const outcome_t outcome = on_every_rank(&world, sum_in_both, &worlds);
        assert_all_succeed(&outcome, pair);
    }
    for (rank = 0; rank < pair; rank++) {
        qcclCommAbort(world.comms[rank]);
        qcclCommAbort(worlds.others[rank]);
    }
}

static void keep_warning(int32_t level, const char *line, void *context)
{
    (void)level;
    if (strstr(line, "qcclCommDestroy:")) snprintf(context, 256, "%s", line);
}

/* A group that is never ended loses its calls, but not without a word. */
static void lost_calls_are_told(void **state)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclUniqueId id;
    qcclComm_t comm = NULL;
    char warning[256] = "";
    (void)state;
    config.log.function = keep_warning;
    config.log.context = warning;
    assert_int_equal(qcclGetUniqueId(&id), qcclSuccess);
    assert_int_equal(qcclCommInitRankConfig(&comm, 1, &id, 0, &config), qcclSuccess);
    assert_int_equal(qcclGroupStart(), qcclSuccess);
    assert_int_equal(qcclBarrier(comm, NULL), qcclSuccess);
    assert_int_equal(qcclCommDestroy(comm), qcclSuccess);
    assert_says(warning, "a group has 1 of the communicator's calls, which are lost");
    refused(qcclGroupEnd(), qcclInvalidUsage, "comm");
}

static void wrong_groups_are_refused(void **state)
{
    world_t world = make_world(2);
    qcclComm_t comm = world.comms[0];
    float data[8] = {0};
    (void)state;
    refused(qcclGroupEnd(), qcclInvalidUsage, "has not called qcclGroupStart");
    assert_int_equal(qcclGroupStart(), qcclSuccess);
    assert_int_equal(qcclGroupEnd(), qcclSuccess);
    refused(qcclGroupEnd(), qcclInvalidUsage, "has not called qcclGroupStart");

    /* The second call is wrong, so that none is made: the others would wait for rank 1. */
    assert_int_equal(qcclGroupStart(), qcclSuccess);
    assert_int_equal(qcclAllReduce(data, data, 8, qcclFloat32, qcclSum, comm, NULL), qcclSuccess);
    refused(qcclAllReduce(data, data, 8, 99, qcclSum, comm, NULL), qcclInvalidArgument,
            "type is 99");
    assert_says(qcclGetLastError(comm), "type is 99");
    assert_int_equal(qcclBarrier(comm, NULL), qcclSuccess);
    refused(qcclGroupEnd(), qcclInvalidArgument, "call 2 of the group (all_reduce): type is 99");

    /* An inner end makes no call. */
    assert_int_equal(qcclGroupStart(), qcclSuccess);
    assert_int_equal(qcclGroupStart(), qcclSuccess);
    refused(qcclSend(data, 8, qcclFloat32, 0, comm, NULL), qcclInvalidArgument, "this rank itself");
    assert_int_equal(qcclGroupEnd(), qcclSuccess);
    refused(qcclRecv(data, 8, qcclFloat32, 5, comm, NULL), qcclInvalidArgument, "peer is 5");
    refused(qcclGroupEnd(), qcclInvalidArgument, "call 1 of the group (send)");
    assert_works(&world);

    assert_int_equal(qcclGroupStart(), qcclSuccess);
    refused(qcclSendRecv(data, 8, 1, data + 4, 4, 1, qcclFloat32, comm, NULL), qcclInvalidArgument,
            "overlap");
    assert_int_equal(qcclAllReduce(data, data, 8, qcclFloat32, qcclSum, comm, NULL), qcclSuccess);
    refused(qcclGroupEnd(), qcclInvalidArgument, "call 1 of the group (send)");
    /* Nor is a copy within the rank made. */
    data[0] = 1;
    assert_int_equal(qcclGroupStart(), qcclSuccess);
    assert_int_equal(qcclSendRecv(data, 4, 0, data + 4, 4, 0, qcclFloat32, comm, NULL),
                     qcclSuccess);
    refused(qcclSendRecv(data, 4, 0, data + 4, 3, 0, qcclFloat32, comm, NULL), qcclInvalidArgument,
            "recv_count is not send_count");
    refused(qcclGroupEnd(), qcclInvalidArgument, "call 2 of the group (send)");
    assert_true(data[4] == 0);
    assert_int_equal(qcclGroupStart(), qcclSuccess);
    assert_int_equal(qcclSendRecv(data, 4, 0, data + 4, 4, 0, qcclFloat32, comm, NULL),
                     qcclSuccess);
    assert_true(data[4] == 0);
    assert_int_equal(qcclGroupEnd(), qcclSuccess);
    assert_true(data[4] == 1);

    assert_int_equal(qcclGroupStart(), qcclSuccess);
    refused(qcclBarrier((qcclComm_t)data, NULL), qcclInvalidArgument, "comm");
    refused(qcclGroupEnd(), qcclInvalidArgument, "call 1 of the group (barrier)");
    assert_works(&world);
    end_world(&world);
}

/* The configs that a message cannot have. */
static void refuse_configs(qcclComm_t comm, int peer)
{
    const qcclCollConfig_t fresh = QCCL_COLL_CONFIG_INIT;
    qcclCollConfig_t configs[6];
    qcclCodec_t int8;
    int values[4] = {0}, sum = 1;
    size_t i;
    assert_int_equal(qcclCodecCreate(&int8, "int8"), qcclSuccess);
    for (i = 0; i < 6; i++) configs[i] = fresh;
    configs[0].codec = int8;
    configs[1].algorithm = "ring";
    configs[2].algorithm = "nonsense";
    configs[3].stride = 8;
    configs[4].timeout = NAN;
    configs[5].codec = (qcclCodec_t)values;
    for (i = 0; i < 6; i++) {
        assert_int_equal(qcclGroupStart(), qcclSuccess);
        assert_int_equal(qcclAllReduce(&sum, &sum, 1, qcclInt32, qcclSum, comm, NULL), qcclSuccess);
        refused(qcclSendConfig(values, 4, qcclInt32, peer, comm, NULL, &configs[i]),
                qcclInvalidArgument, "");
        refused(qcclGroupEnd(), qcclInvalidArgument, "call 2 of the group (send)");
        refused(qcclSendConfig(values, 4, qcclInt32, peer, comm, NULL, &configs[i]),
                qcclInvalidArgument, "");
    }
    assert_int_equal(sum, 1);
    assert_int_equal(qcclCodecDestroy(int8), qcclSuccess);
}

static qcclResult_t one_to_the_other(int rank, qcclComm_t comm, void *context)
{
    int value = 0;
    (void)context;
    return rank == 0 ? qcclSend(&value, 1, qcclInt32, 1, comm, NULL)
                     : qcclRecv(&value, 1, qcclInt32, 0, comm, NULL);
}

/* A wrong config is found before the group's calls are made, and before the ranks meet. */
static void wrong_configs_of_messages_are_refused(void **state)
{
    world_t world = make_world(2);
    outcome_t outcome;
    (void)state;
    refuse_configs(world.comms[0], 1);
    outcome = on_every_rank(&world, one_to_the_other, NULL);
    assert_all_succeed(&outcome, 2);
    refuse_configs(world.comms[0], 1);
    assert_works(&world);
    end_world(&world);
}

static void a_failed_communicator_copies_nothing(void **state)
{
    world_t world = make_world(2);
    int from = 1, to = 0;
    (void)state;
    assert_int_equal(qcclCommRevoke(world.comms[1]), qcclSuccess);
    refused(qcclSendRecv(&from, 1, 0, &to, 1, 0, qcclInt32, world.comms[0], NULL), qcclRevoked,
            "rank 1 revoked");
    assert_int_equal(qcclGroupStart(), qcclSuccess);
    assert_int_equal(qcclSendRecv(&from, 1, 0, &to, 1, 0, qcclInt32, world.comms[0], NULL),
                     qcclSuccess);
    refused(qcclGroupEnd(), qcclRevoked, "call 1 of the group (send)");
    assert_int_equal(to, 0);
    end_world(&world);
}

static qcclResult_t on_a_failed_communicator(int rank, qcclComm_t comm, void *context)
{
    float data[8] = {0};
    qcclResult_t result;
    (void)context;
    if (rank == 0 && (result = qcclCommRevoke(comm)) != qcclSuccess) return result;
    qcclGroupStart();
    qcclAllReduce(data, data, 4, qcclFloat32, qcclSum, comm, NULL);
    if (rank == 1) qcclSend(data + 4, 1, qcclFloat32, 0, comm, NULL);
    if (rank == 0) qcclRecv(data + 4, 1, qcclFloat32, 1, comm, NULL);
    result = qcclGroupEnd();
    return result == qcclSuccess ? qcclInternalError : result;
}

static void a_failed_communicator_ends_the_group(void **state)
{
    world_t world = join_world(3, NULL);
    const outcome_t outcome = on_every_rank(&world, on_a_failed_communicator, NULL);
    int rank;
    (void)state;
    for (rank = 0; rank < 3; rank++) {
        assert_int_equal(outcome.result[rank], qcclRevoked);
        assert_says(outcome.sentence[rank], "of the group");
    }
    end_world(&world);
}

/* The idle function of a rank, which holds the thread that moves the rank's messages. */
typedef struct {
    atomic_int is_watched, is_inside;
    pthread_t caller; /* the thread that makes the rank's calls */
} idle_watch_t;

static void hold_other_threads(void *context)
{
    idle_watch_t *watch = context;
    if (!watch->is_watched || pthread_equal(pthread_self(), watch->caller)) return;
    watch->is_inside = 1;
    sleep_ms(200);
    watch->is_inside = 0;
}

/* Rank 1 fails the communicator while rank 0 waits for a message of it. */
static qcclResult_t fail_while_a_message_waits(int rank, qcclComm_t comm, void *context)
{
    idle_watch_t *watch = context;
    float data[2] = {0};
    qcclResult_t result;
    if (rank == 1) {
        result = qcclSend(data, 1, qcclFloat32, 0, comm, NULL);
        while (!watch->is_inside) sleep_ms(1);
        return result == qcclSuccess ? qcclCommRevoke(comm) : result;
    }
    if ((result = qcclRecv(data, 1, qcclFloat32, 1, comm, NULL)) != qcclSuccess) return result;
    watch->caller = pthread_self();
    watch->is_watched = 1;
    qcclGroupStart();
    qcclRecv(data, 1, qcclFloat32, 1, comm, NULL);
    qcclAllReduce(data + 1, data + 1, 1, qcclFloat32, qcclSum, comm, NULL);
    result = qcclGroupEnd();
    /* The buffers are the caller's again. */
    if (watch->is_inside) return qcclInternalError;
    watch->is_watched = 0;
    return result == qcclRevoked ? qcclSuccess : qcclInternalError;
}

static void a_group_that_fails_leaves_no_message_behind(void **state)
{
    qcclConfig_t configs[2] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    idle_watch_t watch;
    world_t world;
    outcome_t outcome;
    (void)state;
    memset(&watch, 0, sizeof watch);
    configs[0].idle.function = hold_other_threads;
    configs[0].idle.context = &watch;
    world = join_world(2, configs);
    outcome = on_every_rank(&world, fail_while_a_message_waits, &watch);
    assert_all_succeed(&outcome, 2);
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_has_the_order_of_the_calls), /* first: no handle has ended */
        cmocka_unit_test(messages_come_in_any_order),
        cmocka_unit_test(messages_wait_for_a_late_rank),
        cmocka_unit_test(a_config_is_read_in_its_call),
        cmocka_unit_test(one_thread_serves_several_communicators),
        cmocka_unit_test(lost_calls_are_told),
        cmocka_unit_test(wrong_groups_are_refused),
        cmocka_unit_test(wrong_configs_of_messages_are_refused),
        cmocka_unit_test(a_failed_communicator_copies_nothing),
        cmocka_unit_test(a_failed_communicator_ends_the_group),
        cmocka_unit_test(a_group_that_fails_leaves_no_message_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
