/* Tests states with momentum, and the warm-up of dgc. The slow twin of a call is a call of topk
 * without a state, with the ratio that the warm-up has then, on values that the test has computed
 * from the saved state. */
#include "state_kit.h"

#include <math.h>
#include <stdio.h>

enum { steps = 8 };

SHARED_WORLD(ranks)

typedef enum { plain, on_stream, in_group, prepared, ways } way_t;

typedef struct {
    const char *codec, *algorithm;
    float momentum;
    const char *twins[steps]; /* NULL: the one before */
} tested_t;

typedef struct {
    const tested_t *now;
    way_t way;
    char what[ranks][sentence_bytes];
} run_t;

static qcclResult_t enqueue(const float *send, float *recv, qcclComm_t comm,
                            const qcclCollConfig_t *config)
{
    qcclStream_t stream = NULL;
    qcclResult_t done = qcclStreamCreate(&stream);
    if (done == qcclSuccess)
        done = qcclAllReduceConfig(send, recv, count, qcclFloat32, qcclAvg, comm, stream, config);
    if (done == qcclSuccess) done = qcclStreamSynchronize(stream);
    (void)qcclStreamDestroy(stream);
    return done;
}

static qcclResult_t reduce_with(way_t way, const float *send, float *recv, qcclComm_t comm,
                                const qcclCollConfig_t *config, qcclColl_t coll)
{
    qcclResult_t done = qcclSuccess;
    if (way == prepared) return qcclCollStart(coll);
    if (way == on_stream) return enqueue(send, recv, comm, config);
    if (way == in_group) done = qcclGroupStart();
    if (done == qcclSuccess)
        done = qcclAllReduceConfig(send, recv, count, qcclFloat32, qcclAvg, comm, NULL, config);
    if (way == in_group && done == qcclSuccess) done = qcclGroupEnd();
    return done;
}

/* Reads residual and velocity from the saved form. */
static qcclResult_t read_both(qcclState_t state, float *both)
{
    const size_t n = 2 * count * sizeof *both;
    unsigned char *const bytes = malloc(header_bytes + n);
    const qcclResult_t done = qcclStateSave(state, bytes, header_bytes + n);
    memcpy(both, bytes + header_bytes, n);
    free(bytes);
    return done;
}

static qcclResult_t compare(run_t *run, int rank, qcclComm_t comm, qcclCollConfig_t *config,
                            qcclCollConfig_t *twin, float *memory)
{
    float *const send = memory, *const want = send + count, *const recv = want + count,
                 *const owed = recv + count, *const given = owed + 2 * count;
    qcclColl_t coll = NULL;
    size_t i, wrong = 0, moving = 0;
    int step;
    qcclResult_t done = qcclSuccess;
    if (run->way == prepared)
        done = qcclCollCreate(&coll, qcclCollAllReduce, send, recv, count, qcclFloat32, qcclAvg, 0,
                              comm, NULL, config);
    for (step = 0; step < steps && done == qcclSuccess; step++) {
        if (run->now->twins[step]) {
            (void)qcclCodecDestroy(twin->codec);
            done = qcclCodecCreate(&twin->codec, run->now->twins[step]);
        }
        if (done == qcclSuccess) done = read_both(config->state, owed);
        for (i = 0; i < count; i++) {
            const float slower = owed[count + i] * run->now->momentum;
            float velocity;
            send[i] = value_of(rank, i, step);
            velocity = slower + send[i];
            given[i] = velocity + owed[i];
            moving += owed[count + i] != 0;
        }
        if (done == qcclSuccess)
            done = qcclAllReduceConfig(given, want, count, qcclFloat32, qcclAvg, comm, NULL, twin);
        if (done == qcclSuccess) done = reduce_with(run->way, send, recv, comm, config, coll);
        wrong += memcmp(recv, want, count * sizeof *want) != 0;
        for (i = 0; i < count; i++) wrong += send[i] != value_of(rank, i, step);
    }
    if (moving < (size_t)count * steps / 3) wrong++;
    if (coll && done == qcclSuccess) done = qcclCollFree(coll);
    snprintf(run->what[rank], sentence_bytes, "%zu wrong", wrong);
    return done;
}

static qcclResult_t compare_with_twin(int rank, qcclComm_t comm, void *context)
{
    run_t *const run = context;
    qcclStateConfig_t settings = QCCL_STATE_CONFIG_INIT;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT, twin = QCCL_COLL_CONFIG_INIT;
    float *const memory = calloc(6 * count, sizeof *memory);
    qcclResult_t done;
    settings.momentum = run->now->momentum;
    config.algorithm = twin.algorithm = run->now->algorithm;
    done = qcclStateCreate(&config.state, comm, count, qcclFloat32, &settings);
    if (done == qcclSuccess) done = qcclCodecCreate(&config.codec, run->now->codec);
    if (done == qcclSuccess) done = compare(run, rank, comm, &config, &twin, memory);
    (void)qcclStateDestroy(config.state);
    (void)qcclCodecDestroy(config.codec);
    (void)qcclCodecDestroy(twin.codec);
    free(memory);
    return done;
}

/* An element that is sent at once has a velocity of zero, so the algorithms differ in what moves.
 */
static void calls_run_on_velocity_and_residual(void **state)
{
    static const tested_t tested[] = {
        {"dgc:ratio=0.01,momentum=0.5,warmup=6,min=0",
         "direct",
         0.5f,
         {"topk:ratio=0.25,min=0", NULL, "topk:ratio=0.0625,min=0", NULL,
          "topk:ratio=0.015625,min=0", NULL, "topk:ratio=0.01,min=0"}},
        {"dgc:ratio=0.1,warmup=3,min=0",
         "ring",
         0.9f,
         {"topk:ratio=0.25,min=0", NULL, NULL, "topk:ratio=0.1,min=0"}},
        {"dgc:ratio=0.02,momentum=0.25,min=0", "oneshot", 0.25f, {"topk:ratio=0.02,min=0"}},
        {"none", "direct", 0.5f, {"none"}}, /* nothing is sent in part, so every velocity stays */
    };
    size_t i;
    int rank;
    way_t way;
    (void)state;
    for (i = 0; i < sizeof tested / sizeof *tested; i++)
        for (way = plain; way < ways; way++) {
            run_t run = {.now = &tested[i], .way = way};
            const outcome_t outcome = on_every_rank(&world, compare_with_twin, &run);
            assert_all_succeed(&outcome, ranks);
            for (rank = 0; rank < ranks; rank++)
                if (strcmp(run.what[rank], "0 wrong") != 0)
                    fail_msg("%s, %s, way %d, rank %d: %s", tested[i].codec, tested[i].algorithm,
                             (int)way, rank, run.what[rank]);
        }
}

/* ---- One rank ---- */

#define REFUSED(CALL, RESULT, SENTENCE)                                                            \
    do {                                                                                           \
        assert_int_equal(CALL, RESULT);                                                            \
        assert_says(qcclGetLastError(NULL), SENTENCE);                                             \
    } while (0)

static qcclState_t state_with(float momentum, size_t n)
{
    qcclStateConfig_t settings = QCCL_STATE_CONFIG_INIT;
    qcclState_t made = NULL;
    settings.momentum = momentum;
    settings.seed = 0x0102030405060708;
    assert_int_equal(qcclStateCreate(&made, world.comms[2], n, qcclFloat32, &settings),
                     qcclSuccess);
    return made;
}

static void momentum_is_that_of_the_codec(void **unused)
{
    const float wrong[] = {-0.1f, 1, 0.99995f, 0.12345f, NAN, INFINITY};
    static const struct {
        const char *codec, *says;
        float momentum;
    } refused[] = {
        {"dgc:min=0", "codec dgc:min=0 has momentum 0.9, but that of state is none", 0},
        {"dgc:momentum=0.5,min=0", "has momentum 0.5, but that of state is 0.9", 0.9f},
        {"topk:min=0", "codec topk:min=0 has momentum 0, but that of state is 0.9", 0.9f},
        {"int8:min=0", "qcclStateConfig_t", 0.9f}};
    qcclStateConfig_t settings = QCCL_STATE_CONFIG_INIT;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    float values[8] = {0};
    size_t i;
    (void)unused;
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        settings.momentum = wrong[i];
        REFUSED(qcclStateCreate(&config.state, world.comms[2], 8, qcclFloat32, &settings),
                qcclInvalidArgument, "momentum is");
    }
    for (i = 0; i < sizeof refused / sizeof *refused; i++) {
        config.state = state_with(refused[i].momentum, 8);
        assert_int_equal(qcclCodecCreate(&config.codec, refused[i].codec), qcclSuccess);
        REFUSED(qcclAllReduceConfig(values, values, 8, qcclFloat32, qcclSum, world.comms[2], NULL,
                                    &config),
                qcclInvalidArgument, refused[i].says);
        assert_int_equal(qcclCodecDestroy(config.codec), qcclSuccess);
        assert_int_equal(qcclStateDestroy(config.state), qcclSuccess);
    }
}

/* A call that repeats another one but for the state has its momentum compared, too, and what "auto"
 * chooses has none. */
static void every_call_compares_the_momentum(void **unused)
{
    static const char *const refused[] = {"dgc:momentum=0.5,min=0", "auto:nmse=0.1", "bf16"};
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    world_t alone = make_world(1);
    qcclState_t half = NULL, most = NULL;
    qcclStateConfig_t settings = QCCL_STATE_CONFIG_INIT;
    float values[8] = {1};
    size_t i;
    (void)unused;
    settings.momentum = 0.5f;
    assert_int_equal(qcclStateCreate(&half, alone.comms[0], 8, qcclFloat32, &settings),
                     qcclSuccess);
    settings.momentum = 0.9f;
    assert_int_equal(qcclStateCreate(&most, alone.comms[0], 8, qcclFloat32, &settings),
                     qcclSuccess);
    for (i = 0; i < sizeof refused / sizeof *refused; i++) {
        int call;
        assert_int_equal(qcclCodecCreate(&config.codec, refused[i]), qcclSuccess);
        config.state = half;
        for (call = 0; call < 3 && i == 0; call++)
            assert_int_equal(qcclAllReduceConfig(values, values, 8, qcclFloat32, qcclSum,
                                                 alone.comms[0], NULL, &config),
                             qcclSuccess);
        config.state = most;
        for (call = 0; call < 3; call++)
            REFUSED(qcclAllReduceConfig(values, values, 8, qcclFloat32, qcclSum, alone.comms[0],
                                        NULL, &config),
                    qcclInvalidArgument, "that of state is 0.9");
        assert_int_equal(qcclCodecDestroy(config.codec), qcclSuccess);
    }
    assert_int_equal(qcclStateDestroy(half), qcclSuccess);
    assert_int_equal(qcclStateDestroy(most), qcclSuccess);
    end_world(&alone);
}

/* ---- Ranks that do not agree ---- */

typedef struct {
    const char *codec; /* "%s" stands for the rank's momentum */
    float momentum[2]; /* of rank 1, and of the others */
    int ahead;         /* so many calls rank 1 has made alone */
    const char *says;
    size_t calls; /* that are alike */
} unlike_t;

static qcclResult_t call_unlike(int rank, qcclComm_t comm, void *context)
{
    const unlike_t *const unlike = context;
    const float momentum = unlike->momentum[rank != 1];
    qcclStateConfig_t settings = QCCL_STATE_CONFIG_INIT;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    float values[count];
    char spec[80], number[16];
    size_t i, call;
    qcclResult_t done;
    snprintf(number, sizeof number, "%.3f", (double)momentum);
    snprintf(spec, sizeof spec, unlike->codec, number);
    settings.momentum = momentum;
    config.algorithm = "direct";
    done = qcclCodecCreate(&config.codec, spec);
    if (done == qcclSuccess)
        done = qcclStateCreate(&config.state, comm, count, qcclFloat32, &settings);
    if (done == qcclSuccess && rank == 1 && unlike->ahead != 0) {
        unsigned char *const bytes = malloc(header_bytes + 2 * sizeof values);
        done = qcclStateSave(config.state, bytes, header_bytes + 2 * sizeof values);
        bytes[32] = (unsigned char)unlike->ahead;
        seal(bytes, header_bytes + 2 * sizeof values);
        if (done == qcclSuccess)
            done = qcclStateLoad(config.state, bytes, header_bytes + 2 * sizeof values);
        free(bytes);
    }
    for (call = 0; call <= unlike->calls && done == qcclSuccess; call++) {
        for (i = 0; i < count; i++) values[i] = value_of(rank, i, (int)call);
        done =
            qcclAllReduceConfig(values, values, count, qcclFloat32, qcclAvg, comm, NULL, &config);
    }
    (void)qcclStateDestroy(config.state);
    (void)qcclCodecDestroy(config.codec);
    return done;
}

/* The states of lossless calls are compared, too: their sums would say nothing of it. */
static void all_ranks_have_one_momentum(void **unused)
{
    static const unlike_t unlikes[] = {
        {"dgc:ratio=0.1,momentum=%s,min=0", {0.5f, 0.9f}, 0, "dgc:ratio=0.1,", 0},
        {"none", {0.5f, 0.9f}, 0, "none with momentum 0.5", 0},
        {"none", {0.9f, 0}, 0, "none with momentum 0.9", 0},
        {"dgc:ratio=0.01,momentum=%s,warmup=6,min=0", {0.5f, 0.5f}, 1, "dgc:ratio=0.06", 1},
        {"dgc:ratio=0.1,momentum=%s,warmup=6,min=0", {0.5f, 0.5f}, 6, "dgc:ratio=0.2", 0}};
    size_t i;
    (void)unused;
    for (i = 0; i < sizeof unlikes / sizeof *unlikes; i++) {
        world_t own = make_world(ranks);
        unlike_t unlike = unlikes[i];
        const outcome_t outcome = on_every_rank(&own, call_unlike, &unlike);
        char where[32];
        assert_all_say(&outcome, ranks, qcclMismatch, unlike.says);
        /* A rank may still be in an earlier call when the others find the difference. */
        snprintf(where, sizeof where, "in call %d", (int)unlike.calls + 1);
        assert_says(outcome.sentence[0], where);
        end_world(&own);
    }
}

/* ---- Values that are not finite ---- */

static qcclResult_t reduce_strange(int rank, qcclComm_t comm, void *context)
{
    const float strange[] = {NAN, INFINITY, -INFINITY, 3e38f};
    const qcclState_t *const states = context;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    float values[count], both[2 * count];
    size_t i;
    int call;
    qcclResult_t done = qcclCodecCreate(&config.codec, "dgc:ratio=0.01,min=0");
    config.algorithm = "direct";
    config.state = states[rank];
    for (call = 0; call < 4 && done == qcclSuccess; call++) {
        for (i = 0; i < count; i++) values[i] = value_of(rank, i, call);
        for (i = 0; i < 4; i++) values[(size_t)rank * 7 + i * 100] = strange[i];
        done =
            qcclAllReduceConfig(values, values, count, qcclFloat32, qcclSum, comm, NULL, &config);
        if (done == qcclSuccess && !isnan(values[rank * 7])) done = qcclInternalError;
        if (done == qcclSuccess) done = read_both(states[rank], both);
        for (i = 0; i < 2 * count && done == qcclSuccess; i++)
            if (!isfinite(both[i])) done = qcclInternalError;
    }
    (void)qcclCodecDestroy(config.codec);
    return done;
}

/* What was not finite once leaves neither residual nor velocity behind. */
static void states_stay_finite(void **unused)
{
    qcclState_t states[ranks] = {NULL};
    qcclStateConfig_t settings = QCCL_STATE_CONFIG_INIT;
    outcome_t outcome;
    int rank;
    (void)unused;
    settings.momentum = 0.9f;
    for (rank = 0; rank < ranks; rank++)
        assert_int_equal(
            qcclStateCreate(&states[rank], world.comms[rank], count, qcclFloat32, &settings),
            qcclSuccess);
    outcome = on_every_rank(&world, reduce_strange, states);
    assert_all_succeed(&outcome, ranks);
    for (rank = 0; rank < ranks; rank++)
        assert_int_equal(qcclStateDestroy(states[rank]), qcclSuccess);
}

/* ---- Several tensors ---- */

enum { layers = 3 };

typedef struct {
    int is_interleaved;
    float results[ranks][layers][steps][count];
} layered_t;

static qcclResult_t reduce_layers(int rank, qcclComm_t comm, void *context)
{
    static const char *const codecs[layers] = {"dgc:ratio=0.05,momentum=0.5,warmup=4,min=0",
                                               "topk:ratio=0.05,min=0",
                                               "dgc:ratio=0.02,momentum=0.75,min=0"};
    static const float momentum[layers] = {0.5f, 0, 0.75f};
    layered_t *const run = context;
    qcclCollConfig_t configs[layers];
    qcclStateConfig_t settings = QCCL_STATE_CONFIG_INIT;
    float send[count];
    size_t i;
    int each, layer;
    qcclResult_t done = qcclSuccess;
    for (layer = 0; layer < layers; layer++) {
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        settings.momentum = momentum[layer];
        config.algorithm = "ring";
        if (done == qcclSuccess) done = qcclCodecCreate(&config.codec, codecs[layer]);
        if (done == qcclSuccess)
            done =
                qcclStateCreate(&config.state, comm, count - (size_t)layer, qcclFloat32, &settings);
        configs[layer] = config;
    }
    for (each = 0; each < layers * steps && done == qcclSuccess; each++) {
        const int step = run->is_interleaved ? each / layers : each % steps;
        layer = run->is_interleaved ? each % layers : each / steps;
        for (i = 0; i < count; i++) send[i] = value_of(rank, i, layer * 31 + step);
        done = qcclAllReduceConfig(send, run->results[rank][layer][step], count - (size_t)layer,
                                   qcclFloat32, qcclAvg, comm, NULL, &configs[layer]);
    }
    for (layer = 0; layer < layers; layer++) {
        (void)qcclStateDestroy(configs[layer].state);
        (void)qcclCodecDestroy(configs[layer].codec);
    }
    return done;
}

/* The calls of other tensors between those of a state change none of its bits. */
static void each_layer_has_its_own_state(void **unused)
{
    layered_t *const alone = calloc(1, sizeof *alone), *const mixed = calloc(1, sizeof *mixed);
    outcome_t outcome = on_every_rank(&world, reduce_layers, alone);
    (void)unused;
    assert_all_succeed(&outcome, ranks);
    mixed->is_interleaved = 1;
    outcome = on_every_rank(&world, reduce_layers, mixed);
    assert_all_succeed(&outcome, ranks);
    assert_memory_equal(mixed->results, alone->results, sizeof alone->results);
    assert_memory_not_equal(alone->results[0][0], alone->results[0][2],
                            sizeof alone->results[0][0]);
    free(alone);
    free(mixed);
}

/* ---- Saved states ---- */

/* WIRE.md defines these bytes for ever; its 0x732C was computed apart. */
static void saved_bytes_never_change(void **unused)
{
    static const unsigned char golden[] = {
        0x51, 0x43, 0x53, 0x54, 0x02, 0x07, 0x02, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x04, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03,
        0x02, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x84, 0x03, 0x00, 0x00, 0xFC, 0xE0, 0xC1, 0x73, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    };
    const qcclState_t made = state_with(0.9f, 1), other = state_with(0.899f, 1),
                      none = state_with(0, 1);
    unsigned char bad[sizeof golden], *kept;
    size_t size = 0, i;
    unsigned char *const bytes = saved(made, &size);
    (void)unused;
    assert_int_equal(size, sizeof golden);
    assert_memory_equal(bytes, golden, sizeof golden);
    assert_int_equal(qcclStateLoad(made, golden, sizeof golden), qcclSuccess);
    REFUSED(qcclStateLoad(other, golden, sizeof golden), qcclInvalidArgument,
            "momentum=0.9, but this one is of a codec with momentum=0.899");
    kept = saved(none, &size);
    REFUSED(qcclStateLoad(none, golden, sizeof golden), qcclInvalidArgument, "with no momentum");
    assert_is_saved(none, kept);
    REFUSED(qcclStateLoad(made, kept, size), qcclInvalidArgument, "of a codec with no momentum");
    free(kept);
    for (i = 0; i < sizeof golden; i++) {
        memcpy(bad, golden, sizeof golden);
        bad[i] ^= 0x20;
        assert_int_equal(qcclStateLoad(made, bad, sizeof bad), qcclDamagedData);
        assert_is_saved(made, golden);
        assert_int_equal(qcclStateLoad(made, golden, i), qcclDamagedData);
    }
    free(bytes);
    assert_int_equal(qcclStateDestroy(made), qcclSuccess);
    assert_int_equal(qcclStateDestroy(other), qcclSuccess);
    assert_int_equal(qcclStateDestroy(none), qcclSuccess);
}

/* Neither version has the other's momentum, and no state a velocity that is not finite. */
static void what_no_library_writes_is_damaged(void **unused)
{
    static const struct {
        int has_momentum;
        size_t at;
        unsigned char bytes[2];
    } changes[] = {{1, 4, {1, 7}},                          /* the first version with a momentum */
                   {1, 4, {3, 7}},                          /* a version to come */
                   {1, 48, {0, 0}},                         /* the second one without */
                   {1, 48, {0xE8, 0x03}},                   /* 1000 */
                   {1, header_bytes + 2, {0xC0, 0x7F}},     /* NaN owed */
                   {1, header_bytes + 4 + 2, {0x80, 0xFF}}, /* a velocity of -infinity */
                   {0, 4, {2, 7}}, /* the second version without a momentum */
                   {0, 48, {0x84, 0x03}}};
    const qcclState_t states[] = {state_with(0, 1), state_with(0.9f, 1)};
    size_t i;
    (void)unused;
    for (i = 0; i < sizeof changes / sizeof *changes; i++) {
        const qcclState_t made = states[changes[i].has_momentum];
        size_t size = 0;
        unsigned char *const good = saved(made, &size), *const bad = malloc(size);
        memcpy(bad, good, size);
        memcpy(bad + changes[i].at, changes[i].bytes, 2);
        seal(bad, size);
        assert_int_equal(qcclStateLoad(made, bad, size), qcclDamagedData);
        assert_is_saved(made, good);
        free(good);
        free(bad);
    }
    assert_int_equal(qcclStateDestroy(states[0]), qcclSuccess);
    assert_int_equal(qcclStateDestroy(states[1]), qcclSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_run_on_velocity_and_residual),
        cmocka_unit_test(momentum_is_that_of_the_codec),
        cmocka_unit_test(every_call_compares_the_momentum),
        cmocka_unit_test(all_ranks_have_one_momentum),
        cmocka_unit_test(states_stay_finite),
        cmocka_unit_test(each_layer_has_its_own_state),
        cmocka_unit_test(what_no_library_writes_is_damaged),
        cmocka_unit_test(saved_bytes_never_change),
    };
    return cmocka_run_group_tests(tests, make, end);
}
