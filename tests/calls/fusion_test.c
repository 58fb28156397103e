/* Tests which calls of a group are fused, that they have the bits of calls of their own, and that
 * calls which depend on one another still follow one another. */
#include "tests/api/api_kit.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { calls = 9 };

static const size_t counts[calls] = {1, 1000, 0, 7, 4097, 64, 8192, 3, 129};
static const size_t all_counts = 1 + 1000 + 7 + 4097 + 64 + 8192 + 3 + 129;

static const struct {
    qcclDataType_t type;
    size_t bytes;
} types[] = {{qcclInt8, 1},    {qcclUint8, 1},  {qcclInt32, 4},   {qcclUint32, 4},
             {qcclInt64, 8},   {qcclUint64, 8}, {qcclFloat16, 2}, {qcclBfloat16, 2},
             {qcclFloat32, 4}, {qcclFloat64, 8}};

/* Random values. A zero in the exponent's highest bit keeps floats of all sizes finite. */
static void fill(unsigned char *values, size_t count, size_t bytes, unsigned seed)
{
    size_t i;
    for (i = 0; i < count * bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (unsigned char)(seed >> 24);
        if (i % bytes == bytes - 1) values[i] &= 0xBF;
    }
}

static uint64_t calls_of(qcclComm_t comm)
{
    qcclCommStats_t stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    return qcclCommGetStats(comm, &stats) == qcclSuccess ? stats.calls : 0;
}

typedef struct {
    size_t type;
    qcclRedOp_t op;
    int uses_stream, is_in_place;
    const char *algorithm; /* of the calls one by one; the fifth of a group always names the ring */
    uint64_t most_calls;   /* that the group may make */
} fusion_t;

static qcclResult_t reduce_all(const fusion_t *fusion, const unsigned char *send,
                               unsigned char *recv, qcclComm_t comm, qcclStream_t stream)
{
    const size_t bytes = types[fusion->type].bytes;
    qcclResult_t result = qcclSuccess;
    size_t at = 0;
    int i;
    for (i = 0; i < calls && result == qcclSuccess; i++) {
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        const unsigned char *from = (fusion->is_in_place ? recv : send) + at;
        config.algorithm = i == 4 ? "ring" : fusion->algorithm;
        result = qcclAllReduceConfig(from, recv + at, counts[i], types[fusion->type].type,
                                     fusion->op, comm, stream, &config);
        at += counts[i] * bytes;
    }
    return result;
}

static qcclResult_t has_the_same_bits(int rank, qcclComm_t comm, void *context)
{
    const fusion_t *fusion = context;
    const size_t bytes = types[fusion->type].bytes, all = all_counts * bytes;
    unsigned char *send = malloc(all), *alone = malloc(all), *grouped = malloc(all);
    qcclStream_t stream = NULL;
    qcclResult_t result = fusion->uses_stream ? qcclStreamCreate(&stream) : qcclSuccess, ended;
    uint64_t before;
    fill(send, all_counts, bytes, (unsigned)rank + 1);
    memcpy(alone, send, all);
    memcpy(grouped, send, all);
    if (result == qcclSuccess) result = reduce_all(fusion, send, alone, comm, NULL);
    before = calls_of(comm);
    if (result == qcclSuccess) result = qcclGroupStart();
    if (result == qcclSuccess) {
        result = reduce_all(fusion, send, grouped, comm, stream);
        ended = qcclGroupEnd();
        if (result == qcclSuccess) result = ended;
    }
    if (result == qcclSuccess && stream) result = qcclStreamSynchronize(stream);
    if (result == qcclSuccess && memcmp(alone, grouped, all) != 0) result = qcclInternalError;
    if (result == qcclSuccess && calls_of(comm) - before > fusion->most_calls)
        result = qcclInternalError;
    if (qcclStreamDestroy(stream) != qcclSuccess && result == qcclSuccess)
        result = qcclInternalError;
    free(send);
    free(alone);
    free(grouped);
    return result;
}

static void fused_calls_have_the_bits_of_their_own(void **state)
{
    static const char *const algorithms[] = {"oneshot", "direct", "doubling"};
    int size, algorithm;
    (void)state;
    for (size = 2; size <= 5; size++) {
        world_t world = size % 2 ? join_world(size, NULL) : make_world(size);
        for (algorithm = 0; algorithm < 3; algorithm++) {
            fusion_t fusion = {.algorithm = algorithms[algorithm], .most_calls = 2};
            for (fusion.type = 0; fusion.type < sizeof types / sizeof types[0]; fusion.type++)
                for (fusion.op = qcclSum; fusion.op <= qcclAvg; fusion.op++) {
                    outcome_t outcome;
                    fusion.uses_stream = (fusion.op + algorithm) % 2;
                    fusion.is_in_place = (int)(fusion.type + (size_t)algorithm) % 2;
                    outcome = on_every_rank(&world, has_the_same_bits, &fusion);
                    assert_all_succeed(&outcome, size);
                }
        }
        end_world(&world);
    }
}

/* Sums, averages, maxima, parts of sums and gathered parts take turns. */
enum { kinds = 5, turns = 40, values = 37 };

static qcclResult_t take_turns(int rank, qcclComm_t comm, void *context)
{
    static float sums[most_ranks][turns][3 * values];
    float mine[values], all[3 * values];
    const uint64_t before = calls_of(comm);
    qcclResult_t result = qcclGroupStart(), ended;
    int i, j;
    (void)context;
    for (i = 0; i < values; i++) mine[i] = (float)(rank + i);
    for (i = 0; i < 3 * values; i++) all[i] = (float)(rank + i);
    for (i = 0; i < turns && result == qcclSuccess; i++) {
        float *const to = sums[rank][i];
        switch (i % kinds) {
        case 0: result = qcclAllReduce(mine, to, values, qcclFloat32, qcclSum, comm, NULL); break;
        case 1: result = qcclAllReduce(mine, to, values, qcclFloat32, qcclAvg, comm, NULL); break;
        case 2: result = qcclAllReduce(mine, to, values, qcclFloat32, qcclMax, comm, NULL); break;
        case 3: result = qcclAllGather(mine, to, values, qcclFloat32, comm, NULL); break;
        case 4:
            result = qcclReduceScatter(all, to, values, qcclFloat32, qcclSum, comm, NULL);
            break;
        default: break;
        }
    }
    ended = qcclGroupEnd();
    if (result == qcclSuccess) result = ended;
    if (result == qcclSuccess && calls_of(comm) - before != kinds) result = qcclInternalError;
    for (i = 0; i < turns && result == qcclSuccess; i++)
        for (j = 0; j < values; j++) {
            const float *const got = sums[rank][i];
            const float expected[kinds] = {(float)(3 * j + 3), (float)(j + 1), (float)(j + 2),
                                           (float)j, (float)(3 * (rank * values + j) + 3)};
            if (got[j] != expected[i % kinds]) result = qcclInternalError;
            if (i % kinds == 3 &&
                (got[values + j] != (float)(j + 1) || got[2 * values + j] != (float)(j + 2)))
                result = qcclInternalError;
        }
    return result;
}

static void calls_of_several_kinds_are_fused_by_kind(void **state)
{
    world_t world = make_world(3);
    const outcome_t outcome = on_every_rank(&world, take_turns, NULL);
    (void)state;
    assert_all_succeed(&outcome, 3);
    end_world(&world);
}

/* Each rank has tags and timeouts of its own. */
static qcclResult_t label(int rank, qcclComm_t comm, void *context)
{
    int sums[4] = {1, 2, 3, 4}, i;
    const uint64_t before = calls_of(comm);
    qcclResult_t result = qcclGroupStart(), ended;
    (void)context;
    for (i = 0; i < 4 && result == qcclSuccess; i++) {
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        config.tag = (uint64_t)(i * rank);
        config.timeout = i == rank ? -1 : 60 + i;
        result =
            qcclAllReduceConfig(&sums[i], &sums[i], 1, qcclInt32, qcclSum, comm, NULL, &config);
    }
    ended = qcclGroupEnd();
    if (result == qcclSuccess) result = ended;
    if (result == qcclSuccess && calls_of(comm) - before != 1) result = qcclInternalError;
    for (i = 0; i < 4 && result == qcclSuccess; i++)
        if (sums[i] != 3 * (i + 1)) result = qcclInternalError;
    return result;
}

static void tags_and_timeouts_may_differ(void **state)
{
    world_t world = make_world(3);
    const outcome_t outcome = on_every_rank(&world, label, NULL);
    (void)state;
    assert_all_succeed(&outcome, 3);
    end_world(&world);
}

/* The fifth call of a group, by the ring, is not fused with the others. */
static void fusion_is_limited_to_some_bytes(void **state)
{
    static const struct {
        int32_t config;
        const char *setting;
        uint64_t calls;
    } limits[] = {{0, NULL, 2}, {-1, NULL, calls},  {4032, NULL, 4},  {0, "0", calls},
                  {0, "4K", 4}, {64 << 20, "0", 2}, {-1, "4K", calls}};
    qcclConfig_t configs[2] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        fusion_t fusion = {.type = 8, .op = qcclSum, .algorithm = "direct"};
        world_t world;
        outcome_t outcome;
        configs[0].fusion = configs[1].fusion = limits[i].config;
        if (limits[i].setting) setenv("QCCL_FUSION", limits[i].setting, 1);
        world = join_world(2, configs);
        unsetenv("QCCL_FUSION");
        fusion.most_calls = limits[i].calls;
        outcome = on_every_rank(&world, has_the_same_bits, &fusion);
        assert_all_succeed(&outcome, 2);
        fusion.most_calls--;
        outcome = on_every_rank(&world, has_the_same_bits, &fusion);
        assert_int_equal(outcome.result[0], qcclInternalError);
        end_world(&world);
    }
}

/* Each call of the group reads what the one before has written. */
static qcclResult_t follow_one_another(int rank, qcclComm_t comm, void *context)
{
    int values[4] = {rank == 0, 0, 0, 0}, i;
    qcclResult_t result = qcclGroupStart(), ended;
    (void)context;
    for (i = 0; i < 3 && result == qcclSuccess; i++)
        result = qcclAllReduce(&values[i], &values[i + 1], 1, qcclInt32, qcclSum, comm, NULL);
    /* Writes into the middle of what others read. */
    if (result == qcclSuccess)
        result = qcclAllReduce(values, values, 4, qcclInt32, qcclMax, comm, NULL);
    if (result == qcclSuccess)
        result = qcclAllReduce(values + 1, values + 1, 2, qcclInt32, qcclMax, comm, NULL);
    ended = qcclGroupEnd();
    if (result == qcclSuccess) result = ended;
    if (result != qcclSuccess) return result;
    return values[0] == 1 && values[1] == 1 && values[2] == 3 && values[3] == 9 ? qcclSuccess
                                                                                : qcclInternalError;
}

static void calls_that_depend_on_others_follow_them(void **state)
{
    world_t world = make_world(3);
    const outcome_t outcome = on_every_rank(&world, follow_one_another, NULL);
    (void)state;
    assert_all_succeed(&outcome, 3);
    end_world(&world);
}

/* Which calls are on streams is each rank's own business, unless they are fused. */
static qcclResult_t mix_streams(int rank, qcclComm_t comm, void *context)
{
    int sum = 1, all[4] = {0}, mine = rank + 1, i;
    qcclStream_t stream = NULL;
    qcclResult_t result = qcclStreamCreate(&stream), ended;
    (void)context;
    if (result == qcclSuccess) result = qcclGroupStart();
    if (result != qcclSuccess) return result;
    result = qcclAllReduce(&sum, &sum, 1, qcclInt32, qcclSum, comm, rank % 2 ? stream : NULL);
    if (result == qcclSuccess)
        result = qcclAllGather(&mine, all, 1, qcclInt32, comm, rank % 2 ? NULL : stream);
    ended = qcclGroupEnd();
    if (result == qcclSuccess) result = ended;
    if (result == qcclSuccess) result = qcclStreamSynchronize(stream);
    qcclStreamDestroy(stream);
    for (i = 0; i < 4 && result == qcclSuccess; i++)
        if (sum != 4 || all[i] != i + 1) result = qcclInternalError;
    return result;
}

static void calls_keep_their_order_across_streams(void **state)
{
    world_t world = make_world(4);
    const outcome_t outcome = on_every_rank(&world, mix_streams, NULL);
    (void)state;
    assert_all_succeed(&outcome, 4);
    end_world(&world);
}

/* A fused group reads what a call on a stream writes, and a call on a stream what the group writes.
 * Rank 1 comes late, so the first call runs when rank 0 ends its group. */
static qcclResult_t chain_across_streams(int rank, qcclComm_t comm, void *context)
{
    const int *const has_stream = context;
    int values[4] = {rank + 1, 0, 0, 0}, other[2] = {1, 0};
    qcclStream_t first = NULL, second = NULL;
    qcclResult_t result = qcclStreamCreate(&first), ended;
    if (result == qcclSuccess && *has_stream) result = qcclStreamCreate(&second);
    if (rank == 1) usleep(50000);
    if (result == qcclSuccess)
        result = qcclAllReduce(&values[0], &values[1], 1, qcclInt32, qcclSum, comm, first);
    if (result == qcclSuccess) result = qcclGroupStart();
    if (result != qcclSuccess) return result;
    result = qcclAllReduce(&values[1], &values[2], 1, qcclInt32, qcclSum, comm, second);
    if (result == qcclSuccess)
        result = qcclAllReduce(&other[0], &other[1], 1, qcclInt32, qcclSum, comm, second);
    ended = qcclGroupEnd();
    if (result == qcclSuccess) result = ended;
    if (result == qcclSuccess)
        result = qcclAllReduce(&values[2], &values[3], 1, qcclInt32, qcclSum, comm, first);
    if (result == qcclSuccess) result = qcclStreamSynchronize(first);
    if (result == qcclSuccess && second) result = qcclStreamSynchronize(second);
    qcclStreamDestroy(first);
    qcclStreamDestroy(second);
    if (result != qcclSuccess) return result;
    return values[1] == 3 && values[2] == 6 && values[3] == 12 && other[1] == 2 ? qcclSuccess
                                                                                : qcclInternalError;
}

static void fused_calls_take_their_turn(void **state)
{
    world_t world = make_world(2);
    int has_stream;
    (void)state;
    for (has_stream = 0; has_stream < 2; has_stream++) {
        const outcome_t outcome = on_every_rank(&world, chain_across_streams, &has_stream);
        assert_all_succeed(&outcome, 2);
    }
    end_world(&world);
}

/* One rank makes a fused call, the other two calls. */
static qcclResult_t group_on_one_rank(int rank, qcclComm_t comm, void *context)
{
    int values[2] = {rank, rank};
    qcclResult_t result = qcclSuccess, ended = qcclSuccess;
    (void)context;
    if (rank == 0) result = qcclGroupStart();
    if (result == qcclSuccess)
        result = qcclAllReduce(&values[0], &values[0], 1, qcclInt32, qcclSum, comm, NULL);
    if (result == qcclSuccess)
        result = qcclAllReduce(&values[1], &values[1], 1, qcclInt32, qcclSum, comm, NULL);
    if (rank == 0) ended = qcclGroupEnd();
    return result == qcclSuccess ? ended : result;
}

static void ranks_that_fuse_differently_are_told(void **state)
{
    world_t world = join_world(2, NULL);
    const outcome_t outcome = on_every_rank(&world, group_on_one_rank, NULL);
    int rank;
    (void)state;
    for (rank = 0; rank < 2; rank++) {
        assert_int_equal(outcome.result[rank], qcclMismatch);
        assert_says(outcome.sentence[rank], "count");
    }
    assert_says(outcome.sentence[0], "calls 1 to 2 of the group, fused (all_reduce)");
    end_world(&world);
}

/* Between the fused calls of rank 0 is one of another kind. */
static qcclResult_t group_two_kinds_on_one_rank(int rank, qcclComm_t comm, void *context)
{
    int values[3] = {rank, rank, rank}, i;
    qcclResult_t result = qcclSuccess, ended = qcclSuccess;
    (void)context;
    if (rank == 0) result = qcclGroupStart();
    for (i = 0; i < 3 && result == qcclSuccess; i++)
        result = qcclAllReduce(&values[i], &values[i], 1, qcclInt32, i == 1 ? qcclMax : qcclSum,
                               comm, NULL);
    if (rank == 0) ended = qcclGroupEnd();
    return result == qcclSuccess ? ended : result;
}

static void an_error_names_the_calls_of_one_kind(void **state)
{
    world_t world = join_world(2, NULL);
    const outcome_t outcome = on_every_rank(&world, group_two_kinds_on_one_rank, NULL);
    (void)state;
    assert_int_equal(outcome.result[0], qcclMismatch);
    assert_int_equal(outcome.result[1], qcclMismatch);
    assert_says(outcome.sentence[0], "2 of the calls 1 to 3 of the group, fused (all_reduce)");
    end_world(&world);
}

/* The ranks' calls have as many values together, but in another order. */
static qcclResult_t group_in_own_order(int rank, qcclComm_t comm, void *context)
{
    int sums[5] = {0};
    const size_t first = rank == 0 ? 2 : 3;
    qcclResult_t result = qcclGroupStart(), ended;
    (void)context;
    if (result == qcclSuccess)
        result = qcclAllReduce(sums, sums, first, qcclInt32, qcclSum, comm, NULL);
    if (result == qcclSuccess)
        result =
            qcclAllReduce(sums + first, sums + first, 5 - first, qcclInt32, qcclSum, comm, NULL);
    ended = qcclGroupEnd();
    return result == qcclSuccess ? ended : result;
}

static void other_counts_are_told_from_one_another(void **state)
{
    world_t world = join_world(2, NULL);
    const outcome_t outcome = on_every_rank(&world, group_in_own_order, NULL);
    (void)state;
    assert_all_say(&outcome, 2, qcclMismatch,
                   "rank 1 calls all_reduce with other counts than rank 0, in call 1");
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_calls_have_the_bits_of_their_own),
        cmocka_unit_test(calls_of_several_kinds_are_fused_by_kind),
        cmocka_unit_test(tags_and_timeouts_may_differ),
        cmocka_unit_test(fusion_is_limited_to_some_bytes),
        cmocka_unit_test(calls_that_depend_on_others_follow_them),
        cmocka_unit_test(calls_keep_their_order_across_streams),
        cmocka_unit_test(fused_calls_take_their_turn),
        cmocka_unit_test(ranks_that_fuse_differently_are_told),
        cmocka_unit_test(an_error_names_the_calls_of_one_kind),
        cmocka_unit_test(other_counts_are_told_from_one_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
