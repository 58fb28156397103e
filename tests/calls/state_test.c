/* Tests states. The slow twin of a call with a state is a call without one on values to which the
 * test has added what the state owes, as a saved state says it. */
#include "state_kit.h"

#include <stdio.h>

enum { blocks = ranks * count, steps = 3 };

SHARED_WORLD(ranks)

typedef enum { plain, in_place, on_stream, in_group, prepared, ways } way_t;
typedef enum { all_reduces, reduces, scatters, sums } sum_t;

typedef struct {
    const char *codec, *algorithm;
    qcclRedOp_t op;
    sum_t sum;
    way_t way;
    qcclFeedback_t feedback;
} tested_t;

/* What the ranks of one case share. */
typedef struct {
    tested_t now;
    qcclCodec_t codec;
    char what[ranks][sentence_bytes];
} run_t;

static qcclCollConfig_t config_of(const run_t *run, qcclState_t state)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.codec = run->codec;
    config.algorithm = run->now.algorithm;
    config.state = state;
    return config;
}

static size_t given(sum_t sum) { return sum == scatters ? blocks : count; }

static qcclResult_t sum(const tested_t *c, const float *send, float *recv, qcclComm_t comm,
                        qcclStream_t stream, const qcclCollConfig_t *config)
{
    switch (c->sum) {
    case all_reduces:
        return qcclAllReduceConfig(send, recv, count, qcclFloat32, c->op, comm, stream, config);
    case reduces:
        return qcclReduceConfig(send, recv, count, qcclFloat32, c->op, 1, comm, stream, config);
    default:
        return qcclReduceScatterConfig(send, recv, count, qcclFloat32, c->op, comm, stream, config);
    }
}

static qcclResult_t sum_prepared(const tested_t *c, const float *send, float *recv, qcclComm_t comm,
                                 const qcclCollConfig_t *config)
{
    static const qcclCollective_t numbers[sums] = {qcclCollAllReduce, qcclCollReduce,
                                                   qcclCollReduceScatter};
    qcclColl_t coll = NULL;
    qcclResult_t done = qcclCollCreate(&coll, numbers[c->sum], send, recv, count, qcclFloat32,
                                       c->op, 1, comm, NULL, config);
    if (done == qcclSuccess) done = qcclCollStart(coll);
    if (done == qcclSuccess) done = qcclCollFree(coll);
    return done;
}

static qcclResult_t sum_on_stream(const tested_t *c, const float *send, float *recv,
                                  qcclComm_t comm, const qcclCollConfig_t *config)
{
    qcclStream_t stream = NULL;
    qcclResult_t done = qcclStreamCreate(&stream);
    if (done == qcclSuccess) done = sum(c, send, recv, comm, stream, config);
    if (done == qcclSuccess) done = qcclStreamSynchronize(stream);
    (void)qcclStreamDestroy(stream);
    return done;
}

static qcclResult_t sum_in_group(const tested_t *c, const float *send, float *recv, qcclComm_t comm,
                                 const qcclCollConfig_t *config)
{
    float mine[4] = {1, 2, 3, 4}, all[4] = {0};
    qcclResult_t done = qcclGroupStart();
    if (done == qcclSuccess) done = qcclAllReduce(mine, all, 4, qcclFloat32, qcclSum, comm, NULL);
    if (done == qcclSuccess) done = sum(c, send, recv, comm, NULL, config);
    if (done != qcclSuccess) {
        (void)qcclGroupEnd();
        return done;
    }
    return qcclGroupEnd();
}

static qcclResult_t sum_with_state(const run_t *run, const float *send, float *recv,
                                   qcclComm_t comm, qcclState_t state)
{
    const qcclCollConfig_t config = config_of(run, state);
    switch (run->now.way) {
    case on_stream: return sum_on_stream(&run->now, send, recv, comm, &config);
    case in_group: return sum_in_group(&run->now, send, recv, comm, &config);
    case prepared: return sum_prepared(&run->now, send, recv, comm, &config);
    default: return sum(&run->now, send, recv, comm, NULL, &config);
    }
}

static qcclResult_t compare(run_t *run, int rank, qcclComm_t comm, qcclState_t state, float *memory)
{
    const size_t n = given(run->now.sum);
    float *const send = memory, *const owed = send + blocks, *const both = owed + blocks;
    float *const want = both + blocks, *const got = want + blocks;
    const qcclCollConfig_t config = config_of(run, NULL);
    const int has_result = run->now.sum != reduces || rank == 1;
    const int is_in_place = run->now.way == in_place;
    float *const recv = !is_in_place ? got : run->now.sum == scatters ? send + rank * count : send;
    int step;
    size_t i, wrong = 0, left = 0;
    qcclResult_t done = qcclSuccess;
    for (step = 0; step < steps && done == qcclSuccess; step++) {
        for (i = 0; i < n; i++) send[i] = value_of(rank, i, step);
        done = read_owed(state, owed, n);
        for (i = 0; i < n; i++) both[i] = send[i] + owed[i];
        if (done == qcclSuccess) done = sum(&run->now, both, want, comm, NULL, &config);
        if (done == qcclSuccess) done = sum_with_state(run, send, recv, comm, state);
        if (has_result) wrong += memcmp(recv, want, count * sizeof *want) != 0;
        for (i = 0; i < n && !is_in_place; i++) wrong += send[i] != value_of(rank, i, step);
    }
    if (done == qcclSuccess) done = read_owed(state, owed, n);
    for (i = 0; i < n; i++) left += owed[i] != 0;
    if (run->codec == NULL) wrong += left;
    if (run->codec != NULL && run->now.sum == all_reduces && left < n / 10) wrong++;
    snprintf(run->what[rank], sentence_bytes, "%zu wrong", wrong);
    return done;
}

static qcclResult_t compare_with_twin(int rank, qcclComm_t comm, void *context)
{
    run_t *const run = context;
    qcclStateConfig_t config = QCCL_STATE_CONFIG_INIT;
    qcclState_t state = NULL;
    float *const memory = malloc(5 * blocks * sizeof *memory);
    qcclResult_t done;
    config.feedback = run->now.feedback;
    done = qcclStateCreate(&state, comm, given(run->now.sum), qcclFloat32, &config);
    if (done == qcclSuccess) done = compare(run, rank, comm, state, memory);
    (void)qcclStateDestroy(state);
    free(memory);
    return done;
}

static void check(const tested_t *tested)
{
    run_t run = {.now = *tested, .codec = NULL};
    outcome_t outcome;
    int rank;
    if (tested->codec && qcclCodecCreate(&run.codec, tested->codec) != qcclSuccess)
        fail_msg("%s", qcclGetLastError(NULL));
    outcome = on_every_rank(&world, compare_with_twin, &run);
    assert_all_succeed(&outcome, ranks);
    for (rank = 0; rank < ranks; rank++)
        if (strcmp(run.what[rank], "0 wrong") != 0)
            fail_msg("%s, %s, sum %d, op %d, way %d, rank %d: %s", tested->codec, tested->algorithm,
                     (int)tested->sum, (int)tested->op, (int)tested->way, rank, run.what[rank]);
    assert_int_equal(qcclCodecDestroy(run.codec), qcclSuccess);
}

static void calls_run_on_what_is_given_and_what_is_owed(void **state)
{
    static const char *const codecs[] = {NULL, "fp8e4m3", "int2:min=0", "onebit",
                                         "topk:ratio=0.01"};
    static const char *const algorithms[] = {"direct", "ring", "oneshot"};
    size_t c, a, number = 0;
    int op, form;
    (void)state;
    for (c = 0; c < sizeof codecs / sizeof *codecs; c++)
        for (a = 0; a < 3; a++)
            for (form = 0; form < sums; form++)
                for (op = 0; op < 2; op++, number++) {
                    const tested_t tested = {.codec = codecs[c],
                                             .algorithm = algorithms[a],
                                             .op = op == 0 ? qcclSum : qcclAvg,
                                             .sum = (sum_t)form,
                                             .way = (way_t)(number % ways),
                                             .feedback = (qcclFeedback_t)(number / 7 % 2)};
                    check(&tested);
                }
}

/* A failed call leaves the states of all ranks as they were, and names the rank that differs. */
static void all_ranks_have_a_state_or_none(void **state)
{
    static const char *const codecs[] = {"int4", "terngrad"};
    size_t c;
    (void)state;
    for (c = 0; c < 2; c++) {
        world_t own = make_world(ranks);
        shared_t shared;
        outcome_t outcome;
        unsigned char *before[ranks];
        size_t bytes;
        int rank;
        begin(&shared, &own, codecs[c]);
        outcome = on_every_rank(&own, reduce_once, &shared);
        assert_all_succeed(&outcome, ranks);
        for (rank = 0; rank < ranks; rank++) before[rank] = saved(shared.states[rank], &bytes);
        shared.has_none = 2;
        outcome = on_every_rank(&own, reduce_once, &shared);
        assert_all_say(&outcome, ranks, qcclMismatch, "state");
        for (rank = 0; rank < ranks; rank++) {
            assert_is_saved(shared.states[rank], before[rank]);
            free(before[rank]);
        }
        finish(&shared);
        end_world(&own);
    }
}

/* Ranks that would draw other noise disagree. */
static void noise_needs_equal_numbers_of_calls(void **state)
{
    world_t own = make_world(ranks);
    shared_t shared;
    outcome_t outcome;
    (void)state;
    begin(&shared, &own, "terngrad");
    outcome = on_every_rank(&own, reduce_once, &shared);
    assert_all_succeed(&outcome, ranks);
    assert_int_equal(qcclStateReset(shared.states[1]), qcclSuccess);
    outcome = on_every_rank(&own, reduce_once, &shared);
    assert_all_say(&outcome, ranks, qcclMismatch, "state call 1");
    finish(&shared);
    end_world(&own);
}

/* The first call tells of a loss, so the second one runs without the codec, and pays what the first
 * one owes. */
static void a_lossless_call_pays_what_is_owed(void **state)
{
    shared_t shared;
    outcome_t outcome;
    float owed[ranks][count], nothing[count];
    double got, wanted;
    size_t i;
    int rank, call;
    (void)state;
    begin(&shared, &world, "int2:guard=nmse:1e-9,min=0");
    for (call = 0; call < 2; call++) {
        for (rank = 0; rank < ranks; rank++)
            assert_int_equal(read_owed(shared.states[rank], owed[rank], count), qcclSuccess);
        outcome = on_every_rank(&world, reduce_once, &shared);
        assert_all_succeed(&outcome, ranks);
    }
    for (i = 0; i < count; i++) {
        got = shared.results[i];
        for (rank = 0, wanted = 0; rank < ranks; rank++)
            wanted += (double)value_of(rank, i, 0) + owed[rank][i];
        assert_true(got - wanted < 1e-3 && wanted - got < 1e-3);
    }
    for (rank = 0, i = 0; rank < ranks; rank++) {
        assert_int_equal(read_owed(shared.states[rank], nothing, count), qcclSuccess);
        for (i = 0; i < count; i++) assert_true(nothing[i] == 0);
    }
    finish(&shared);
}

/* ---- One rank ---- */

#define REFUSED(CALL, RESULT, SENTENCE)                                                            \
    do {                                                                                           \
        assert_int_equal(CALL, RESULT);                                                            \
        assert_says(qcclGetLastError(NULL), SENTENCE);                                             \
    } while (0)

static void what_does_not_fit_is_refused_by_name(void **unused)
{
    const qcclComm_t comm = world.comms[0];
    const qcclState_t nothing = (qcclState_t)(uintptr_t)0x1234;
    qcclStateConfig_t wrong = QCCL_STATE_CONFIG_INIT;
    qcclState_t state = NULL;
    unsigned char small[8];
    size_t bytes = 0;
    (void)unused;
    assert_int_equal(qcclStateCreate(&state, comm, 8, qcclFloat32, NULL), qcclSuccess);
    REFUSED(qcclStateCreate(NULL, comm, 8, qcclFloat32, NULL), qcclInvalidArgument, "state_out");
    REFUSED(qcclStateCreate(&state, comm, 8, qcclInt32, NULL), qcclInvalidArgument,
            "type is int32");
    REFUSED(qcclStateCreate(&state, comm, SIZE_MAX, qcclFloat32, NULL), qcclInvalidArgument,
            "count is");
    wrong.feedback = 7;
    REFUSED(qcclStateCreate(&state, comm, 8, qcclFloat32, &wrong), qcclInvalidArgument,
            "feedback is 7");
    REFUSED(qcclStateBytes(NULL, &bytes), qcclInvalidArgument, "state is NULL");
    REFUSED(qcclStateBytes(state, NULL), qcclInvalidArgument, "bytes_out");
    REFUSED(qcclStateBytes(nothing, &bytes), qcclInvalidArgument, "no qcclStateCreate made");
    REFUSED(qcclStateSave(state, small, sizeof small), qcclInvalidArgument, "bytes is 8");
    REFUSED(qcclStateSave(state, NULL, 1000), qcclInvalidArgument, "buffer is NULL");
    REFUSED(qcclStateLoad(state, NULL, 96), qcclInvalidArgument, "buffer is NULL");
    REFUSED(qcclStateLoad(state, small, sizeof small), qcclDamagedData, "shorter");
    assert_int_equal(qcclStateDestroy(state), qcclSuccess);
    REFUSED(qcclStateDestroy(state), qcclInvalidUsage, "destroyed");
    assert_int_equal(qcclStateDestroy(NULL), qcclSuccess);
}

static void calls_refuse_states_that_are_not_theirs(void **unused)
{
    const qcclComm_t comm = world.comms[0];
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclState_t state = NULL, of_other = NULL;
    float a[4 * 8] = {0}, b[4 * 8];
    int32_t whole[8] = {0};
    const size_t counts[ranks] = {2, 2, 2, 2};
    (void)unused;
    assert_int_equal(qcclStateCreate(&state, comm, 8, qcclFloat32, NULL), qcclSuccess);
    assert_int_equal(qcclStateCreate(&of_other, world.comms[1], 8, qcclFloat32, NULL), qcclSuccess);
    config.state = (qcclState_t)(uintptr_t)0x1234;
    REFUSED(qcclAllReduceConfig(a, b, 8, qcclFloat32, qcclSum, comm, NULL, &config),
            qcclInvalidArgument, "no qcclStateCreate made");
    config.state = state;
    REFUSED(qcclAllReduceConfig(a, b, 7, qcclFloat32, qcclSum, comm, NULL, &config),
            qcclInvalidArgument, "state has 8 elements");
    REFUSED(qcclAllReduceConfig(a, b, 8, qcclFloat16, qcclSum, comm, NULL, &config),
            qcclInvalidArgument, "state is of float");
    REFUSED(qcclAllReduceConfig(whole, whole, 8, qcclInt32, qcclSum, comm, NULL, &config),
            qcclInvalidArgument, "type is int32");
    REFUSED(qcclAllReduceConfig(a, b, 8, qcclFloat32, qcclMax, comm, NULL, &config),
            qcclInvalidArgument, "qcclSum nor qcclAvg");
    REFUSED(qcclBroadcastConfig(a, b, 8, qcclFloat32, 0, comm, NULL, &config), qcclInvalidArgument,
            "broadcast takes none");
    REFUSED(qcclScanConfig(a, b, 8, qcclFloat32, qcclSum, comm, NULL, &config), qcclInvalidArgument,
            "scan takes none");
    REFUSED(qcclSendConfig(a, 8, qcclFloat32, 1, comm, NULL, &config), qcclInvalidArgument,
            "takes none");
    REFUSED(qcclReduceScatterConfig(a, b, 8, qcclFloat32, qcclSum, comm, NULL, &config),
            qcclInvalidArgument, "32");
    REFUSED(qcclReduceScatterVConfig(a, b, counts, NULL, qcclFloat32, qcclSum, comm, NULL, &config),
            qcclInvalidArgument, "takes none");
    config.stride = 3;
    REFUSED(qcclReduceScatterConfig(a, b, 2, qcclFloat32, qcclSum, comm, NULL, &config),
            qcclInvalidArgument, "stride");
    config.stride = 0;
    config.state = of_other;
    REFUSED(qcclAllReduceConfig(a, b, 8, qcclFloat32, qcclSum, comm, NULL, &config),
            qcclInvalidArgument, "rank 1");

    assert_int_equal(qcclStateDestroy(of_other), qcclSuccess);
    REFUSED(qcclAllReduceConfig(a, b, 8, qcclFloat32, qcclSum, comm, NULL, &config),
            qcclInvalidUsage, "destroyed");

    config.state = state;
    assert_int_equal(qcclGroupStart(), qcclSuccess);
    assert_int_equal(qcclAllReduceConfig(a, b, 8, qcclFloat32, qcclSum, comm, NULL, &config),
                     qcclSuccess);
    REFUSED(qcclAllReduceConfig(a + 8, b + 8, 8, qcclFloat32, qcclSum, comm, NULL, &config),
            qcclInvalidUsage, "earlier call of the group");
    assert_int_equal(qcclGroupEnd(), qcclInvalidUsage);
    assert_int_equal(qcclStateDestroy(state), qcclSuccess);
    assert_works(&world);
}

static qcclResult_t reduce_a_few(int rank, qcclComm_t comm, void *context)
{
    shared_t *const shared = context;
    float values[count];
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    size_t i;
    if (rank == 0) return qcclSuccess;
    for (i = 0; i < count; i++) values[i] = 1;
    config.codec = shared->codec;
    config.state = shared->states[rank];
    return qcclAllReduceConfig(values, values, count, qcclFloat32, qcclSum, comm, NULL, &config);
}

/* Rank 0 has enqueued its call, and the others have not come. */
static void one_call_at_a_time_has_a_state(void **unused)
{
    shared_t shared;
    outcome_t outcome;
    qcclStream_t stream = NULL;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    float a[count] = {0}, b[count];
    unsigned char buffer[header_bytes + sizeof a];
    (void)unused;
    begin(&shared, &world, "int8");
    assert_int_equal(qcclStreamCreate(&stream), qcclSuccess);
    config.codec = shared.codec;
    config.state = shared.states[0];
    assert_int_equal(
        qcclAllReduceConfig(a, b, count, qcclFloat32, qcclSum, world.comms[0], stream, &config),
        qcclSuccess);
    assert_int_equal(
        qcclAllReduceConfig(a, a, count, qcclFloat32, qcclSum, world.comms[0], stream, &config),
        qcclInvalidUsage);
    assert_says(qcclGetLastError(NULL), "has not ended");
    assert_int_equal(qcclStateSave(shared.states[0], buffer, sizeof buffer), qcclInvalidUsage);
    assert_int_equal(qcclStateReset(shared.states[0]), qcclInvalidUsage);
    assert_int_equal(qcclStateDestroy(shared.states[0]), qcclSuccess); /* the call keeps it */
    shared.states[0] = NULL;
    outcome = on_every_rank(&world, reduce_a_few, &shared);
    assert_all_succeed(&outcome, ranks);
    assert_int_equal(qcclStreamSynchronize(stream), qcclSuccess);
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
    assert_true(b[0] == 3);
    finish(&shared);
}

/* One rank encodes nothing. */
static void one_rank_owes_nothing(void **unused)
{
    world_t alone = make_world(1);
    qcclState_t state = NULL;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    float values[count], sum[count], owed[count];
    size_t i;
    (void)unused;
    assert_int_equal(qcclCodecCreate(&config.codec, "int2"), qcclSuccess);
    assert_int_equal(qcclStateCreate(&state, alone.comms[0], count, qcclFloat32, NULL),
                     qcclSuccess);
    config.state = state;
    for (i = 0; i < count; i++) values[i] = value_of(0, i, 0);
    assert_int_equal(qcclAllReduceConfig(values, sum, count, qcclFloat32, qcclAvg, alone.comms[0],
                                         NULL, &config),
                     qcclSuccess);
    assert_memory_equal(values, sum, sizeof sum);
    assert_int_equal(read_owed(state, owed, count), qcclSuccess);
    for (i = 0; i < count; i++) assert_true(owed[i] == 0);
    assert_int_equal(qcclStateDestroy(state), qcclSuccess);
    assert_int_equal(qcclCodecDestroy(config.codec), qcclSuccess);
    end_world(&alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_run_on_what_is_given_and_what_is_owed),
        cmocka_unit_test(all_ranks_have_a_state_or_none),
        cmocka_unit_test(noise_needs_equal_numbers_of_calls),
        cmocka_unit_test(a_lossless_call_pays_what_is_owed),
        cmocka_unit_test(what_does_not_fit_is_refused_by_name),
        cmocka_unit_test(calls_refuse_states_that_are_not_theirs),
        cmocka_unit_test(one_call_at_a_time_has_a_state),
        cmocka_unit_test(one_rank_owes_nothing),
    };
    return cmocka_run_group_tests(tests, make, end);
}
