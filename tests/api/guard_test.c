/* Tests codecs with a guard: calls whose samples exceed the guard's error become lossless, on all
 * ranks from the same call on, and are encoded again later. */
#include "api_kit.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ranks = 4, count = 280000, fewest_to_return = 16 };

typedef struct {
    pthread_mutex_t mutex;
    char text[16384];
} lines_t;

static lines_t lines = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void keep(int32_t level, const char *line, void *context)
{
    (void)level;
    (void)context;
    pthread_mutex_lock(&lines.mutex);
    strncat(lines.text, line, sizeof lines.text - strlen(lines.text) - 2);
    strcat(lines.text, "\n");
    pthread_mutex_unlock(&lines.mutex);
}

static int lines_with(const char *part)
{
    const char *at = lines.text;
    int found = 0;
    while ((at = strstr(at, part)) != NULL) {
        found++;
        at++;
    }
    return found;
}

static world_t make_guarded(const char *codec)
{
    qcclConfig_t configs[ranks];
    world_t world;
    int rank;
    lines.text[0] = '\0';
    for (rank = 0; rank < ranks; rank++) {
        configs[rank] = (qcclConfig_t)QCCL_CONFIG_INIT;
        configs[rank].codec = codec;
        configs[rank].log.function = keep;
    }
    setenv("QCCL_DEBUG", "info", 1);
    world = join_world(ranks, configs);
    unsetenv("QCCL_DEBUG");
    return world;
}

/* One call. The values of rank `loud` (-1: no rank) suit integer codecs badly: one value of each
 * block is far larger than the rest. */
typedef struct {
    int loud;
    uint64_t tag;
    uint32_t seed;
    qcclRedOp_t op;
    bool scatters;
    float send[ranks][count], recv[ranks][count];
} sums_t;

static sums_t sums;

static float next_value(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int32_t)*state / 2147483648.0f;
}

static void fill(sums_t *call, int rank)
{
    uint32_t state = call->seed * 31 + (uint32_t)rank + 1;
    int i;
    for (i = 0; i < count; i++) {
        call->send[rank][i] = next_value(&state);
        if (rank == call->loud && i % 32 == 0) call->send[rank][i] *= 10000;
        if (rank == call->loud && i % 32 != 0) call->send[rank][i] *= 300;
    }
}

static qcclResult_t sum_up(int rank, qcclComm_t comm, void *context)
{
    sums_t *const call = context;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.tag = call->tag;
    fill(call, rank);
    if (call->scatters)
        return qcclReduceScatterConfig(call->send[rank], call->recv[rank], count / ranks,
                                       qcclFloat32, call->op, comm, NULL, &config);
    return qcclAllReduceConfig(call->send[rank], call->recv[rank], count, qcclFloat32, call->op,
                               comm, NULL, &config);
}

/* Returns the NMSE of the result. */
static double error_of_call(const world_t *world, int loud, uint64_t tag)
{
    double error = 0, square = 0;
    outcome_t outcome;
    int i, rank;
    sums.loud = loud;
    sums.tag = tag;
    sums.seed++;
    outcome = on_every_rank(world, sum_up, &sums);
    assert_all_succeed(&outcome, ranks);
    for (i = 0; i < count; i++) {
        const int owner = sums.scatters ? i / (count / ranks) : 0;
        const int at = sums.scatters ? i % (count / ranks) : i;
        double exact = 0, found;
        for (rank = 0; rank < ranks; rank++) exact += sums.send[rank][i];
        if (sums.op == qcclAvg) exact /= ranks;
        found = sums.recv[owner][at];
        if (!sums.scatters)
            for (rank = 1; rank < ranks; rank++)
                assert_true(sums.recv[rank][at] == sums.recv[0][at]);
        error += (found - exact) * (found - exact);
        square += exact * exact;
    }
    return error / square;
}

/* A lossless call loses no more than the rounding of floats. */
static bool goes_lossless(const world_t *world, int loud, uint64_t tag)
{
    return error_of_call(world, loud, tag) < 1e-13;
}

static uint64_t guarded_calls(const world_t *world, int rank)
{
    qcclCommStats_t stats = {.size = sizeof stats};
    assert_int_equal(qcclCommGetStats(world->comms[rank], &stats), qcclSuccess);
    return stats.guarded_calls;
}

static char *explained(const world_t *world, const char *what)
{
    static char text[8192];
    size_t bytes = sizeof text;
    if (qcclExplain(world->comms[0], what, text, &bytes) != qcclSuccess)
        fail_msg("%s", qcclGetLastError(world->comms[0]));
    return text;
}

/* Any rank may have such values, and every collective that sums is guarded. */
static void values_that_lose_too_much_go_lossless(void **state)
{
    static const struct {
        qcclRedOp_t op;
        bool scatters;
    } kinds[] = {{qcclSum, false}, {qcclAvg, false}, {qcclSum, true}};
    size_t kind;
    int loud, i;
    (void)state;
    for (kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        sums.op = kinds[kind].op;
        sums.scatters = kinds[kind].scatters;
        for (loud = 0; loud < ranks; loud++) {
            world_t world = make_guarded("int8:guard=nmse:1e-4,min=0");
            for (i = 0; i < 3; i++) {
                const double error = error_of_call(&world, -1, 7);
                assert_true(error > 1e-7 && error < 1e-4);
            }
            assert_int_equal(guarded_calls(&world, 0), 0);
            assert_int_equal(lines_with("goes lossless"), 0);
            /* The call whose samples exceed the limit still uses the codec; the next one does not.
             * */
            assert_false(goes_lossless(&world, loud, 7));
            for (i = 0; i < 3; i++) assert_true(goes_lossless(&world, loud, 7));
            for (i = 0; i < ranks; i++) assert_int_equal(guarded_calls(&world, i), 3);
            assert_int_equal(lines_with("goes lossless after call 4, whose samples tell of an NMSE "
                                        "of"),
                             1);
            assert_int_equal(lines_with("with tag 7"), 1);
            end_world(&world);
        }
    }
    sums.op = qcclSum;
    sums.scatters = false;
}

/* The codec returns after enough good samples in a row. The first switch to lossless is logged as a
 * warning, later ones at info level. */
static void the_codec_returns(void **state)
{
    world_t world = make_guarded("int8:guard=nmse:1.5e-4,min=0");
    int i;
    (void)state;
    /* The first sample after the switch still includes the previous call's result. */
    assert_false(goes_lossless(&world, 1, 0));
    for (i = 0; i < 1 + fewest_to_return; i++) assert_true(goes_lossless(&world, -1, 0));
    assert_int_equal(lines_with("is encoded again after call 18"), 1);
    assert_false(goes_lossless(&world, -1, 0));
    assert_false(goes_lossless(&world, 1, 0));

    for (i = 0; i < 1 + 2 * fewest_to_return; i++) assert_true(goes_lossless(&world, -1, 0));
    assert_false(goes_lossless(&world, -1, 0));
    for (i = 0; i < ranks; i++)
        assert_int_equal(guarded_calls(&world, i), 3 * fewest_to_return + 2);
    end_world(&world);
}

/* Tags, shapes and communicators are guarded independently. */
static void others_keep_their_codec(void **state)
{
    world_t world = make_guarded("int8:guard=nmse:1e-4,min=0"), other;
    (void)state;
    assert_false(goes_lossless(&world, 2, 1));
    assert_true(goes_lossless(&world, 2, 1));
    assert_false(goes_lossless(&world, -1, 2));
    sums.op = qcclAvg;
    assert_false(goes_lossless(&world, -1, 1));
    sums.op = qcclSum;
    other = make_guarded("int8:guard=nmse:1e-4,min=0");
    assert_false(goes_lossless(&other, -1, 1));
    end_world(&other);
    assert_says(explained(&world, "all_reduce count=280000"),
                "guard: codec int8:min=0,guard=nmse:1e-04 with tag 1 goes lossless, latest NMSE ");
    assert_says(explained(&world, "all_reduce count=280000"),
                "with tag 2 is encoded, latest NMSE ");
    end_world(&world);
}

/* Ranks whose values almost cancel out leave a small result, of which the errors are a large part.
 * Only the result shows that, and it counts from the next sample on. */
static qcclResult_t cancel_out(int rank, qcclComm_t comm, void *context)
{
    sums_t *const call = context;
    uint32_t state = call->seed;
    int i;
    for (i = 0; i < count; i++)
        call->send[rank][i] = next_value(&state) * (rank % 2 == 0 ? 1.0f : -0.99f);
    return qcclAllReduce(call->send[rank], call->recv[rank], count, qcclFloat32, qcclSum, comm,
                         NULL);
}

static void ranks_that_cancel_each_other_out_are_noticed(void **state)
{
    world_t world = make_guarded("int8:guard=nmse:1e-4,min=0");
    outcome_t outcome;
    int call;
    (void)state;
    for (call = 1; call <= 3; call++) {
        outcome = on_every_rank(&world, cancel_out, &sums);
        assert_all_succeed(&outcome, ranks);
        assert_int_equal(guarded_calls(&world, 3), call == 3 ? 1 : 0);
    }
    end_world(&world);
}

static uint64_t hash_of(const float *values)
{
    uint64_t hash = 14695981039346656037u;
    int i;
    for (i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        hash = (hash ^ bits) * 1099511628211u;
    }
    return hash;
}

/* The same calls give the same bits, even though the guard switches. */
static void runs_repeat(void **state)
{
    enum { calls = 40 };
    uint64_t first[calls];
    int run, i;
    (void)state;
    for (run = 0; run < 2; run++) {
        world_t world = make_guarded("int4:guard=nmse:3.6e-2,min=0");
        sums.seed = 100;
        for (i = 0; i < calls; i++) {
            error_of_call(&world, i == 5 || i == 33 ? 3 : -1, 0);
            if (run == 0) first[i] = hash_of(sums.recv[0]);
            assert_true(hash_of(sums.recv[0]) == first[i]);
        }
        /* The guard has switched to lossless and back. */
        assert_true(guarded_calls(&world, 0) >= 17 && guarded_calls(&world, 0) < calls - 6);
        end_world(&world);
    }
}

static void what_cannot_be_is_refused(void **state)
{
    static const struct {
        const char *codec, *says;
    } cases[] = {
        {"int8:guard=1e-3", "codec: guard is \"1e-3\"; possible is nmse: and a number above 0 and "
                            "below 1, as nmse:1e-3"},
        {"int8:guard=nmse:2", "codec: guard is \"nmse:2\""},
        {"minmax:bucket=all,guard=nmse:0.1", "codec: guard looks at samples"},
    };
    size_t i;
    qcclCodec_t codec;
    size_t bytes;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(qcclCodecCreate(&codec, cases[i].codec), qcclInvalidArgument);
        assert_says(qcclGetLastError(NULL), cases[i].says);
    }
    assert_int_equal(qcclCodecCreate(&codec, "int8:guard=nmse:0.1"), qcclSuccess);
    assert_int_equal(qcclCodecMaxEncodedBytes(codec, 10, qcclFloat32, &bytes), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL),
                "codec is int8:guard=nmse:0.1, and a guard is of collectives");
    assert_int_equal(qcclCodecDestroy(codec), qcclSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_lose_too_much_go_lossless),
        cmocka_unit_test(the_codec_returns),
        cmocka_unit_test(others_keep_their_codec),
        cmocka_unit_test(ranks_that_cancel_each_other_out_are_noticed),
        cmocka_unit_test(runs_repeat),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
