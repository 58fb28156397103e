/* Calls with layers that are refused, and ranks whose lists differ. A refused call names the layer
 * at fault, reduces nothing, changes no state, and can be corrected. Lists that differ are a
 * mismatch on every rank, whatever it is in which they differ.
 */
#include "tests/api/api_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { size = 3, layers = 4, small = 300, values = 2 * 2048 + small + 5, in_use = 600 };

static const size_t counts[layers] = {2048, small, 2048, 5};

SHARED_WORLD(size)

/* A call of one rank. */
typedef struct {
    qcclLayer_t list[layers];
    qcclCollConfig_t config;
    float send[values], recv[values];
    size_t count;
    qcclDataType_t type;
    qcclRedOp_t op;
    qcclCodec_t codec;
    qcclState_t states[2];
} given_t;

static qcclResult_t begin(given_t *given, qcclComm_t comm, int rank)
{
    const qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclResult_t result;
    int i;
    memset(given, 0, sizeof *given);
    for (i = 0; i < layers; i++) given->list[i].count = counts[i];
    for (i = 0; i < values; i++) {
        given->send[i] = (float)((i * 37 + rank * 11) % 101) / 7;
        given->recv[i] = -1;
    }
    given->config = config;
    given->config.layers = given->list;
    given->config.nlayers = layers;
    given->count = values;
    given->type = qcclFloat32;
    given->op = qcclSum;
    result = qcclCodecCreate(&given->codec, "int4");
    for (i = 0; i < 2 && result == qcclSuccess; i++)
        result = qcclStateCreate(&given->states[i], comm, 2048, qcclFloat32, NULL);
    for (i = 0; i < 2; i++) {
        given->list[2 * i].codec = given->codec;
        given->list[2 * i].state = given->states[i];
    }
    return result;
}

static void finish(given_t *given)
{
    qcclStateDestroy(given->states[0]);
    qcclStateDestroy(given->states[1]);
    qcclCodecDestroy(given->codec);
}

static qcclResult_t reduce(given_t *given, qcclComm_t comm)
{
    return qcclAllReduceConfig(given->send, given->recv, given->count, given->type, given->op, comm,
                               NULL, &given->config);
}

/* ---- Refusals */

typedef void (*spoil_t)(given_t *given);

static void too_few(given_t *given) { given->count++; }
static void too_many(given_t *given) { given->count--; }
static void wraps(given_t *given)
{
    given->list[1].count = SIZE_MAX - 2048;
    given->list[2].count = 2049 + values;
}
static void beyond_memory(given_t *given)
{
    given->count = SIZE_MAX / 2;
    given->list[0].count = SIZE_MAX / 2 - (values - 2048);
}
static void no_layers(given_t *given) { given->config.nlayers = 0; }
static void too_many_layers(given_t *given) { given->config.nlayers = 16385; }
static void no_list(given_t *given) { given->config.layers = NULL; }
static void least_without_list(given_t *given)
{
    given->config.layers = NULL;
    given->config.nlayers = 0;
    given->config.layer_min_size = 7;
}
static void state_of_all(given_t *given) { given->config.state = given->states[0]; }
static void negative(given_t *given) { given->list[1].dimensions = -2; }
static void newer(given_t *given) { given->list[3].reserved[8] = 1; }
static void no_codec(given_t *given) { given->list[2].codec = (qcclCodec_t)&given->list; }
static void no_codec_of_small(given_t *given) { given->list[3].codec = (qcclCodec_t)&given->list; }
static void no_usual_codec(given_t *given) { given->config.codec = (qcclCodec_t)&given->list; }
static void no_state(given_t *given) { given->list[3].state = (qcclState_t)&given->list; }
static void one_state(given_t *given) { given->list[2].state = given->states[0]; }
static void short_state(given_t *given) { given->list[1].state = given->states[1]; }
static void no_sum(given_t *given) { given->op = qcclMax; }
static void no_float(given_t *given)
{
    given->list[0].state = given->list[2].state = NULL;
    given->type = qcclInt32;
}
static void no_type(given_t *given) { given->type = 1234; }
static void no_algorithm(given_t *given) { given->config.algorithm = "rign"; }
static void has_stride(given_t *given) { given->config.stride = 5000; }
static void no_number(given_t *given) { given->config.timeout = (double)NAN; }

static const struct {
    spoil_t spoil;
    qcclResult_t result;
    const char *sentence;
} spoilt[] = {
    {too_few, qcclInvalidArgument, "the layers have 4401 elements together, but count is 4402"},
    {too_many, qcclInvalidArgument, "layers[3]: count is 5, but 4 of the call's elements are left"},
    {wraps, qcclInvalidArgument,
     "layers[1]: count is 18446744073709549567, but 2353 of the call's"},
    {beyond_memory, qcclInvalidArgument, "count is 9223372036854775807"},
    {no_layers, qcclInvalidArgument, "nlayers is 0; possible are 1 to 16384"},
    {too_many_layers, qcclInvalidArgument, "nlayers is 16385; possible are 1 to 16384"},
    {no_list, qcclInvalidArgument, "nlayers is 4, but layers is NULL"},
    {least_without_list, qcclInvalidArgument, "layer_min_size is 7, but layers is NULL"},
    {state_of_all, qcclInvalidArgument, "state is set, and so is layers"},
    {negative, qcclInvalidArgument, "layers[1]: dimensions is -2"},
    {newer, qcclInvalidArgument, "layers[3]: byte 60 is set"},
    {no_codec, qcclInvalidArgument, "layers[2]: codec is "},
    {no_codec_of_small, qcclInvalidArgument, "layers[3]: codec is "},
    {no_usual_codec, qcclInvalidArgument, "codec is "},
    {no_state, qcclInvalidArgument, "layers[3]: state is "},
    {one_state, qcclInvalidUsage, "layers[2]: config: state is that of an earlier call"},
    {short_state, qcclInvalidArgument, "layers[1]: config: state has 2048 elements"},
    {no_sum, qcclInvalidArgument, "layers[0]: config: state is set, but op is neither"},
    {no_float, qcclInvalidArgument, "layers[0]: codec int4: int32 values travel as they are"},
    {no_type, qcclInvalidArgument, "type is 1234"},
    {no_algorithm, qcclInvalidArgument, "layers[0]: config: algorithm of all_reduce"},
    {has_stride, qcclInvalidArgument, "layers[0]: config: stride is 5000"},
    {no_number, qcclInvalidArgument, "timeout is not a number"},
};
enum { kinds_of_spoilt = sizeof spoilt / sizeof spoilt[0] };

typedef struct {
    char complaints[size][160];
} complaints_t;

static void complain(complaints_t *all, int rank, const char *what, const char *sentence)
{
    if (all->complaints[rank][0] == '\0')
        snprintf(all->complaints[rank], sizeof all->complaints[rank], "%s: %.120s", what, sentence);
}

static void check_refusal(given_t *given, qcclComm_t comm, int rank, size_t i, complaints_t *all)
{
    static float before[size][values];
    qcclResult_t result;
    qcclColl_t coll = NULL;
    memcpy(before[rank], given->recv, sizeof before[rank]);
    spoilt[i].spoil(given);
    result = reduce(given, comm);
    if (result != spoilt[i].result || !strstr(qcclGetLastError(comm), spoilt[i].sentence))
        complain(all, rank, spoilt[i].sentence, qcclGetLastError(comm));
    result = qcclCollCreate(&coll, qcclCollAllReduce, given->send, given->recv, given->count,
                            given->type, given->op, 0, comm, NULL, &given->config);
    if (result != spoilt[i].result || coll) complain(all, rank, spoilt[i].sentence, "prepared");
    if (qcclGroupStart() != qcclSuccess || reduce(given, comm) != spoilt[i].result ||
        qcclGroupEnd() != spoilt[i].result ||
        !strstr(qcclGetLastError(NULL), "call 1 of the group (all_reduce): "))
        complain(all, rank, spoilt[i].sentence, "in a group");
    if (memcmp(before[rank], given->recv, sizeof before[rank]) != 0)
        complain(all, rank, spoilt[i].sentence, "values were written");
}

/* Of a state that has been used once, so that it owes something. */
static uint64_t hash_of(qcclState_t state)
{
    unsigned char saved[64 + 2048 * 4];
    uint64_t hash = 1;
    size_t i;
    if (qcclStateSave(state, saved, sizeof saved) != qcclSuccess) return 0;
    for (i = 0; i < sizeof saved; i++) hash = (hash ^ saved[i]) * 1099511628211u;
    return hash;
}

static qcclResult_t be_refused(int rank, qcclComm_t comm, void *context)
{
    complaints_t *const all = context;
    static given_t given_of[size];
    given_t *const given = &given_of[rank], whole;
    qcclResult_t result = begin(given, comm, rank);
    uint64_t hash;
    size_t i;
    if (result == qcclSuccess) result = reduce(given, comm);
    hash = hash_of(given->states[0]) ^ hash_of(given->states[1]);
    whole = *given;
    for (i = 0; i < kinds_of_spoilt && result == qcclSuccess; i++) {
        *given = whole;
        given->config.layers = given->list;
        check_refusal(given, comm, rank, i, all);
        if ((hash_of(given->states[0]) ^ hash_of(given->states[1])) != hash)
            complain(all, rank, spoilt[i].sentence, "states have changed");
    }
    *given = whole;
    if (result == qcclSuccess) result = reduce(given, comm);
    if ((hash_of(given->states[0]) ^ hash_of(given->states[1])) == hash)
        complain(all, rank, "the corrected call", "states have not changed");
    finish(given);
    return result;
}

static void bad_lists_are_refused_by_name(void **state)
{
    complaints_t all;
    outcome_t outcome;
    int rank;
    (void)state;
    memset(&all, 0, sizeof all);
    outcome = on_every_rank(&world, be_refused, &all);
    for (rank = 0; rank < size; rank++) assert_string_equal(all.complaints[rank], "");
    assert_all_succeed(&outcome, size);
}

/* Parts of the two vectors meet, although none meets the part of its own layer. */
static void vectors_that_meet_are_refused(void **state)
{
    float memory[2 * 64] = {0};
    qcclLayer_t list[2] = {{.count = 32}, {.count = 32}};
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    (void)state;
    config.layers = list;
    config.nlayers = 2;
    assert_int_equal(qcclAllReduceConfig(memory, memory + 32, 64, qcclFloat32, qcclSum,
                                         world.comms[0], NULL, &config),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(world.comms[0]), "overlap");
    assert_int_equal(
        qcclAllReduceConfig(memory, NULL, 64, qcclFloat32, qcclSum, world.comms[0], NULL, &config),
        qcclInvalidArgument);
    assert_says(qcclGetLastError(world.comms[0]), "recv is NULL");
    assert_works(&world);
}

static void other_collectives_have_no_layers(void **state)
{
    float memory[64] = {0};
    qcclLayer_t list[1] = {{.count = 64}};
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    const qcclComm_t comm = world.comms[0];
    (void)state;
    config.layers = list;
    config.nlayers = 1;
    assert_int_equal(
        qcclReduceConfig(memory, memory, 64, qcclFloat32, qcclSum, 0, comm, NULL, &config),
        qcclInvalidArgument);
    assert_string_equal(qcclGetLastError(comm), "config: layers is set, but reduce takes none");
    assert_int_equal(qcclBarrierConfig(comm, NULL, &config), qcclInvalidArgument);
    assert_string_equal(qcclGetLastError(comm), "config: layers is set, but barrier takes none");
    assert_int_equal(qcclSendConfig(memory, 64, qcclFloat32, 1, comm, NULL, &config),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(comm), "config: layers is set");
    assert_works(&world);
}

/* ---- A state that is in use */

typedef struct {
    world_t other;
    complaints_t all;
} busy_t;

/* The state of the last layer is that of a call in a stream, to which the other ranks come later.
 */
static qcclResult_t use_twice(int rank, qcclComm_t comm, void *context)
{
    busy_t *const busy = context;
    static float memory[size][in_use], more[size][in_use];
    qcclLayer_t list[2] = {{.count = 100}, {.count = in_use - 100}};
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT, layered = QCCL_COLL_CONFIG_INIT;
    qcclStream_t stream = NULL;
    qcclResult_t result = qcclStreamCreate(&stream);
    if (result == qcclSuccess)
        result = qcclStateCreate(&config.state, comm, in_use - 100, qcclFloat32, NULL);
    list[1].state = config.state;
    layered.layers = list;
    layered.nlayers = 2;
    more[rank][0] = 5;
    if (result == qcclSuccess && rank == 0) {
        result = qcclAllReduceConfig(memory[rank], memory[rank], in_use - 100, qcclFloat32, qcclSum,
                                     comm, stream, &config);
        if (qcclAllReduceConfig(more[rank], more[rank], in_use, qcclFloat32, qcclSum,
                                busy->other.comms[rank], NULL, &layered) != qcclInvalidUsage ||
            more[rank][0] != 5)
            complain(&busy->all, rank, "busy", qcclGetLastError(NULL));
        if (!strstr(qcclGetLastError(busy->other.comms[rank]), "state is used by a call"))
            complain(&busy->all, rank, "sentence", qcclGetLastError(busy->other.comms[rank]));
    }
    if (result == qcclSuccess) result = qcclBarrier(busy->other.comms[rank], NULL);
    if (result == qcclSuccess && rank != 0)
        result = qcclAllReduceConfig(memory[rank], memory[rank], in_use - 100, qcclFloat32, qcclSum,
                                     comm, stream, &config);
    if (result == qcclSuccess) result = qcclStreamSynchronize(stream);
    if (result == qcclSuccess)
        result = qcclAllReduceConfig(more[rank], more[rank], in_use, qcclFloat32, qcclSum,
                                     busy->other.comms[rank], NULL, &layered);
    qcclStateDestroy(config.state);
    qcclStreamDestroy(stream);
    return result;
}

static void a_state_in_use_is_refused_before_any_layer_runs(void **state)
{
    busy_t busy;
    outcome_t outcome;
    (void)state;
    memset(&busy, 0, sizeof busy);
    busy.other = make_world(size);
    outcome = on_every_rank(&world, use_twice, &busy);
    assert_string_equal(busy.all.complaints[0], "");
    assert_all_succeed(&outcome, size);
    end_world(&busy.other);
}

/* ---- Mismatches */

typedef enum {
    other_order,
    other_lengths,
    fewer_layers,
    empty_layer,
    longer,
    other_codec,
    other_dimensions,
    other_least,
    one_state_less,
    calls_by_themselves,
    one_call,
    kinds_of_difference
} difference_t;

typedef struct {
    difference_t difference;
    const char *algorithm;
} differing_t;

static void differ(given_t *given, difference_t difference)
{
    qcclLayer_t *const list = given->list;
    switch (difference) {
    case other_order: list[1] = list[2], list[2].count = small; break;
    case other_lengths: list[0].count -= 3, list[2].count += 3; break;
    case fewer_layers: list[2].count += list[3].count, given->config.nlayers--; break;
    case empty_layer: list[1].count += list[3].count, list[3].count = 0; break;
    case longer: list[3].count--, given->count--; break;
    case other_codec: list[2].codec = NULL; break;
    case other_dimensions: list[2].dimensions = 1; break;
    case other_least: given->config.layer_min_size = 2049; break;
    case one_state_less: list[2].state = given->states[1]; break;
    case calls_by_themselves:
    case one_call:
    case kinds_of_difference: break;
    }
}

static qcclResult_t make_other(given_t *given, qcclComm_t comm, difference_t difference)
{
    const size_t count = difference == one_call ? values : counts[0];
    given->config.layers = NULL;
    given->config.nlayers = 0;
    if (difference == calls_by_themselves) given->config.codec = given->codec;
    given->count = count;
    return reduce(given, comm);
}

static qcclResult_t differ_on_a_rank(int rank, qcclComm_t comm, void *context)
{
    const differing_t *const what = context;
    static given_t given_of[size];
    given_t *const given = &given_of[rank];
    qcclResult_t result = begin(given, comm, rank);
    int i;
    given->config.algorithm = what->algorithm;
    /* States come with one difference alone: they keep calls apart. */
    for (i = 0; i < layers; i++) given->list[i].state = NULL;
    if (what->difference == other_lengths && what->algorithm) given->list[1].codec = given->codec;
    if (rank == 1) differ(given, what->difference);
    if (result == qcclSuccess && rank == 1 && what->difference >= calls_by_themselves)
        result = make_other(given, comm, what->difference);
    else if (result == qcclSuccess)
        result = reduce(given, comm);
    /* A rank that was not told by its call is told at the latest by the end. */
    finish(given);
    return result;
}

static void lists_that_differ_are_a_mismatch(void **state)
{
    static const char *const algorithms[] = {NULL, "ring", "direct", "tree"};
    differing_t what;
    size_t i;
    int rank;
    (void)state;
    for (i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++)
        for (what.difference = other_order; what.difference < kinds_of_difference;
             what.difference++) {
            world_t differing = make_world(size);
            outcome_t outcome;
            what.algorithm = algorithms[i];
            outcome = on_every_rank(&differing, differ_on_a_rank, &what);
            for (rank = 0; rank < size; rank++) {
                assert_int_equal(outcome.result[rank], qcclMismatch);
                assert_says(outcome.sentence[rank], "rank 1");
            }
            end_world(&differing);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_lists_are_refused_by_name),
        cmocka_unit_test(vectors_that_meet_are_refused),
        cmocka_unit_test(other_collectives_have_no_layers),
        cmocka_unit_test(a_state_in_use_is_refused_before_any_layer_runs),
        cmocka_unit_test(lists_that_differ_are_a_mismatch),
    };
    return cmocka_run_group_tests(tests, make, end);
}
