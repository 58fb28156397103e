/* Tests ranks that disagree about a call, through the C API: every rank gets the same error, which
 * names the first rank that differs from rank 0 and both values. */
#include "api_kit.h"

#include <stdlib.h>
#include <string.h>

enum { size = 3, count = 10000 };

/* The properties of rank 2's call, which differs from the others' in one of them. */
typedef struct {
    const char *name;
    size_t count;
    qcclDataType_t type;
    qcclRedOp_t op;
    const char *codec;
    const char *algorithm;
    const char *says[2];
} difference_t;

static const difference_t differences[] = {
    {"count", count - 1, qcclFloat32, qcclSum, "int8", "ring", {"9999", "10000"}},
    {"type", count, qcclFloat16, qcclSum, "int8", "ring", {"half", "float"}},
    {"op", count, qcclFloat32, qcclAvg, "int8", "ring", {"avg", "sum"}},
    {"codec", count, qcclFloat32, qcclSum, "int4", "ring", {"int4", "int8"}},
    {"algorithm", count, qcclFloat32, qcclSum, "int8", "direct", {"direct", "ring"}},
};

static qcclResult_t reduce(int rank, qcclComm_t comm, void *context)
{
    static const difference_t usual = {"", count, qcclFloat32, qcclSum, "int8", "ring", {"", ""}};
    const difference_t *how = rank == 2 ? context : &usual;
    float *buffer = calloc(count, sizeof *buffer);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclResult_t result = qcclCodecCreate(&config.codec, how->codec);
    config.algorithm = how->algorithm;
    config.tag = 1000 + (uint64_t)rank;
    if (result == qcclSuccess)
        result = qcclAllReduceConfig(buffer, buffer, how->count, how->type, how->op, comm, NULL,
                                     &config);
    qcclCodecDestroy(config.codec);
    free(buffer);
    return result;
}

static void check_failed(world_t *world, outcome_t outcome, const char *const says[2])
{
    int rank;
    for (rank = 0; rank < size; rank++) {
        qcclErrorInfo_t info;
        qcclResult_t async = qcclSuccess;
        memset(&info, 0, sizeof info);
        info.size = sizeof info;
        assert_int_equal(qcclGetErrorInfo(world->comms[rank], &info), qcclSuccess);
        assert_int_equal(info.code, qcclMismatch);
        assert_int_equal(info.rank, rank);
        assert_int_equal(info.peer, 2);
        assert_int_equal(info.call, 1);
        assert_int_equal(qcclCommGetAsyncError(world->comms[rank], &async), qcclSuccess);
        assert_int_equal(async, qcclMismatch);
        /* The first failure stays. */
        assert_int_equal(qcclBarrier(world->comms[rank], NULL), qcclMismatch);
        assert_string_equal(qcclGetLastError(world->comms[rank]), outcome.sentence[rank]);
    }
    assert_all_say(&outcome, size, qcclMismatch, "rank 2");
    assert_says(outcome.sentence[0], "rank 0");
    assert_says(outcome.sentence[0], says[0]);
    assert_says(outcome.sentence[0], says[1]);
    end_world(world);
}

static void check_differences(int are_strangers)
{
    size_t i;
    for (i = 0; i < sizeof differences / sizeof differences[0]; i++) {
        world_t world = are_strangers ? join_world(size, NULL) : make_world(size);
        const outcome_t outcome = on_every_rank(&world, reduce, (void *)&differences[i]);
        assert_says(outcome.sentence[0], differences[i].name);
        check_failed(&world, outcome, differences[i].says);
    }
}

static void threads_that_disagree(void **state)
{
    (void)state;
    check_differences(0);
}

static void strangers_that_disagree(void **state)
{
    (void)state;
    check_differences(1);
}

/* One rank passes a garbage count; all buffers are as large as the others' count. */
enum { honest_count = 64 };

typedef struct {
    size_t count;
    int wrong_rank;
    int collective; /* 0 to 4, as in the switch */
    const char *algorithm;
} wild_t;

/* Static rather than on the threads' stacks, so that a wild count cannot make send and recv
 * overlap. */
static float wild_values[size][size * honest_count];

static qcclResult_t wildly(int rank, qcclComm_t comm, void *context)
{
    const wild_t *wild = context;
    const size_t n = rank == wild->wrong_rank ? wild->count : honest_count;
    float *send = wild_values[rank], recv[size * honest_count];
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.algorithm = wild->algorithm;
    switch (wild->collective) {
    case 0: return qcclAllReduceConfig(send, send, n, qcclFloat32, qcclSum, comm, NULL, &config);
    case 1:
        return qcclReduceScatterConfig(send, recv, n, qcclFloat32, qcclSum, comm, NULL, &config);
    case 2: return qcclAllGatherConfig(send, recv, n, qcclFloat32, comm, NULL, &config);
    case 3: return qcclAllToAllConfig(send, recv, n, qcclFloat32, comm, NULL, &config);
    default: /* the wrong rank is the root: another root may return without waiting */
        return qcclBroadcastConfig(send, send, n, qcclFloat32, wild->wrong_rank, comm, NULL,
                                   &config);
    }
}

static void counts_beyond_the_buffers(void **state)
{
    static const char *const algorithms[] = {NULL, "ring", "direct", "oneshot"};
    static const size_t counts[] = {100000000000, (size_t)1 << 31, 1000000};
    size_t a, c;
    wild_t wild;
    (void)state;
    for (a = 0; a < sizeof algorithms / sizeof algorithms[0]; a++)
        for (c = 0; c < sizeof counts / sizeof counts[0]; c++)
            for (wild.wrong_rank = 0; wild.wrong_rank < size; wild.wrong_rank += 2)
                for (wild.collective = 0; wild.collective < 5; wild.collective++) {
                    if (wild.collective == 3 && a == 1) continue; /* there is no such schedule */
                    world_t world = make_world(size);
                    outcome_t outcome;
                    wild.count = counts[c];
                    wild.algorithm = algorithms[a];
                    outcome = on_every_rank(&world, wildly, &wild);
                    assert_all_say(&outcome, size, qcclMismatch, "with count 64");
                    end_world(&world);
                }
}

static qcclResult_t in_another_order(int rank, qcclComm_t comm, void *context)
{
    float buffer[3 * 4] = {0};
    qcclResult_t result;
    (void)context;
    if (rank == 2) return qcclAllGather(buffer, buffer + 6, 2, qcclFloat32, comm, NULL);
    result = qcclAllReduce(buffer, buffer, 4, qcclFloat32, qcclSum, comm, NULL);
    return result;
}

static void another_order_of_calls(void **state)
{
    static const char *const says[2] = {"all_gather", "all_reduce"};
    world_t world = make_world(size);
    const outcome_t outcome = on_every_rank(&world, in_another_order, NULL);
    (void)state;
    check_failed(&world, outcome, says);
}

static qcclResult_t with_another_root(int rank, qcclComm_t comm, void *context)
{
    const int collective = *(const int *)context, root = rank == 2 ? 1 : 0;
    float buffer[size * count], other[size * count];
    memset(buffer, 0, sizeof buffer);
    switch (collective) {
    case 0: return qcclBroadcast(buffer, buffer, count, qcclFloat32, root, comm, NULL);
    case 1: return qcclReduce(buffer, other, count, qcclFloat32, qcclSum, root, comm, NULL);
    case 2: return qcclGather(buffer, other, count, qcclFloat32, root, comm, NULL);
    default: return qcclScatter(buffer, other, count, qcclFloat32, root, comm, NULL);
    }
}

/* A rank that only sends may return before any rank has seen the mismatch. Its next call then
 * returns the error. */
static void another_root(void **state)
{
    int collective, rank;
    (void)state;
    for (collective = 0; collective < 4; collective++) {
        world_t world = make_world(size);
        const outcome_t outcome = on_every_rank(&world, with_another_root, &collective);
        for (rank = 0; rank < size; rank++) {
            const qcclResult_t result = outcome.result[rank] != qcclSuccess
                                            ? outcome.result[rank]
                                            : qcclBarrier(world.comms[rank], NULL);
            assert_int_equal(result, qcclMismatch);
            assert_says(qcclGetLastError(world.comms[rank]), "root");
        }
        end_world(&world);
    }
}

/* Ranks 0 and 1 broadcast from rank 0, rank 2 from itself, so no rank waits for a message that is
 * never sent. Any next call returns the mismatch on every rank. Only the root of a second broadcast
 * may return early; the end of its communicator then returns the error. */
enum { all_reduce, reduce_scatter, all_gather, broadcast, barrier, split, shrink, finalize };
enum { next_calls = finalize + 1 };

typedef struct {
    size_t count;
    int next;
} own_root_t;

static qcclResult_t make_next_call(int next, qcclComm_t comm)
{
    float values[4 * size] = {0}, others[4 * size];
    qcclComm_t made = NULL;
    switch (next) {
    case all_reduce: return qcclAllReduce(values, others, 4, qcclFloat32, qcclSum, comm, NULL);
    case reduce_scatter:
        return qcclReduceScatter(values, others, 4, qcclFloat32, qcclSum, comm, NULL);
    case all_gather: return qcclAllGather(values, others, 4, qcclFloat32, comm, NULL);
    case broadcast: return qcclBroadcast(values, others, 4, qcclFloat32, 1, comm, NULL);
    case barrier: return qcclBarrier(comm, NULL);
    case split: return qcclCommSplit(comm, 0, 0, &made, NULL);
    case shrink: return qcclCommShrink(comm, NULL, 0, &made, NULL, QCCL_SHRINK_DEFAULT);
    case finalize: return qcclCommFinalize(comm);
    default: return qcclSuccess; /* no call, only the end */
    }
}

static qcclResult_t from_own_root(int rank, qcclComm_t comm, void *context)
{
    const own_root_t *how = context;
    float *const values = calloc(how->count, sizeof *values);
    qcclResult_t result =
        qcclBroadcast(values, values, how->count, qcclFloat32, rank == 2 ? 2 : 0, comm, NULL);
    qcclResult_t ended;
    if (result == qcclSuccess) result = make_next_call(how->next, comm);
    ended = qcclCommDestroy(comm);
    free(values);
    /* The end does not report an error that the rank has got already. */
    if (result == qcclSuccess) return ended;
    return ended == qcclSuccess ? result : qcclInternalError;
}

static void check_own_roots(world_t world, own_root_t how)
{
    const outcome_t outcome = on_every_rank(&world, from_own_root, &how);
    assert_all_say(&outcome, size, qcclMismatch,
                   "rank 2 calls broadcast with root 2, rank 0 with root 0, in call 1");
}

static void own_roots(void **state)
{
    static const size_t counts[] = {1, 3000, 300000};
    size_t i;
    own_root_t how;
    (void)state;
    for (how.next = 0; how.next <= next_calls; how.next++)
        for (i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            how.count = counts[i];
            check_own_roots(make_world(size), how);
            check_own_roots(join_world(size, NULL), how);
        }
}

/* The stream's thread finds the mismatch. The caller gets the error if it synchronizes the stream;
 * otherwise the call that ends or shrinks the communicator returns it. */
static qcclResult_t own_roots_on_a_stream(int rank, qcclComm_t comm, void *context)
{
    const own_root_t *how = context;
    float value = (float)rank;
    qcclStream_t stream = NULL;
    qcclResult_t told, ended, result = qcclStreamCreate(&stream);
    if (result == qcclSuccess)
        result = qcclBroadcast(&value, &value, 1, qcclFloat32, rank, comm, stream);
    /* The barrier is refused if the stream's thread has found the mismatch already. */
    told = result == qcclSuccess ? qcclBarrier(comm, stream) : result;
    if (told == qcclSuccess && how->count) told = qcclStreamSynchronize(stream);
    qcclStreamDestroy(stream);
    if (told == qcclSuccess) told = make_next_call(how->next, comm);
    ended = qcclCommDestroy(comm);
    if (result != qcclSuccess || (told != qcclSuccess && ended != qcclSuccess))
        return qcclInternalError;
    return told == qcclSuccess ? ended : told;
}

static void own_roots_on_streams(void **state)
{
    static const own_root_t hows[] = {{0, next_calls}, {1, next_calls}, {0, shrink}, {0, finalize}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof hows / sizeof *hows; i++) {
        own_root_t how = hows[i];
        world_t world = i % 2 ? make_world(size) : join_world(size, NULL);
        const outcome_t outcome = on_every_rank(&world, own_roots_on_a_stream, &how);
        assert_all_say(&outcome, size, qcclMismatch, "calls broadcast with root");
    }
}

/* One rank shrinks the communicator while the others make another call. */
typedef struct {
    int next, shrinker;
} against_t;

static qcclResult_t against_a_shrink(int rank, qcclComm_t comm, void *context)
{
    const against_t *against = context;
    qcclResult_t result = qcclBarrier(comm, NULL);
    if (result == qcclSuccess)
        result = make_next_call(rank == against->shrinker ? shrink : against->next, comm);
    if (result == qcclSuccess && against->next == broadcast)
        result = qcclCommFinalize(comm); /* the broadcast need not involve that rank */
    return result;
}

static void a_shrink_against_any_other_call(void **state)
{
    against_t against;
    (void)state;
    for (against.next = 0; against.next < shrink; against.next++)
        for (against.shrinker = 0; against.shrinker < size; against.shrinker++) {
            world_t world = join_world(size, NULL);
            const double start = now_s();
            const outcome_t outcome = on_every_rank(&world, against_a_shrink, &against);
            assert_all_say(&outcome, size, qcclMismatch, "comm_shrink");
            assert_says(outcome.sentence[0], "in call 2");
            assert_true(now_s() - start < 10);
            end_world(&world);
        }
}

/* A call that is refused on one rank consumes no call number, so the corrected call matches the
 * others'. */
static qcclResult_t after_a_mistake(int rank, qcclComm_t comm, void *context)
{
    float value = 1;
    (void)context;
    if (rank == 1) {
        if (qcclAllReduce(&value, NULL, 1, qcclFloat32, qcclSum, comm, NULL) != qcclInvalidArgument)
            return qcclInternalError;
        sleep_ms(50);
    }
    return qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comm, NULL);
}

static void a_corrected_call_completes(void **state)
{
    world_t world = make_world(size);
    const outcome_t outcome = on_every_rank(&world, after_a_mistake, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_that_disagree),
        cmocka_unit_test(strangers_that_disagree),
        cmocka_unit_test(counts_beyond_the_buffers),
        cmocka_unit_test(another_order_of_calls),
        cmocka_unit_test(another_root),
        cmocka_unit_test(own_roots),
        cmocka_unit_test(own_roots_on_streams),
        cmocka_unit_test(a_shrink_against_any_other_call),
        cmocka_unit_test(a_corrected_call_completes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
