/* Compares calls with layers byte for byte with one all-reduce for each layer, which a twin
 * communicator makes: by every algorithm, with codecs that differ from layer to layer, with states,
 * in place and not, on streams, prepared and in groups. The rules that make layers lossless are the
 * test's own. Runs on the host and, with ON_GPUS, on emulated GPUs; there a commit runs every
 * second case, and all with QTEST_FULL=1.
 */
#include "tested_world.h"

#include <stdio.h>
#include <string.h>

enum { layers = 16, most_bytes = 8, repeats = 2, extra = 33, size = on_gpus ? 3 : 4 };

/* Small ones between large ones, layers of no value, of one, and of odd numbers of them, and two of
 * one length, which share a guard. */
static const size_t counts[layers] = {17000, 31, 1025, 0,   1,   1023, 9001, 64,
                                      0,     7,  1024, 129, 300, 3,    4099, 1025};
enum { all_values = 34732 };

static const struct {
    qcclDataType_t type;
    size_t bytes;
    unsigned least, varying; /* of a value's highest byte, as in fused_bits_test.c */
    int is_float;
} types[] = {{qcclFloat32, 4, 0x3C, 3, 1},
             {qcclBfloat16, 2, 0x3C, 3, 1},
             {qcclFloat64, 8, 0x3F, 0, 1},
             {qcclFloat16, 2, 0x38, 3, 1},
             {qcclInt32, 4, 0, 0x7F, 0}};
enum { kinds_of_type = sizeof types / sizeof types[0] };

static const char *const codecs[] = {NULL,
                                     "int8",
                                     "int4:round=stochastic",
                                     "minmax:bits=4,bucket=64",
                                     "topk:ratio=0.1",
                                     "onebit:bucket=100",
                                     "nvfp4",
                                     "norm:bits=4",
                                     "int4:guard=nmse:1e-5,min=0",
                                     "auto:nmse=1e-3,min=0",
                                     "fp16",
                                     "none",
                                     "terngrad:bucket=100"};
/* The first mixes have one codec alone. */
enum { kinds_of_codec = sizeof codecs / sizeof codecs[0], mixes = kinds_of_codec + 4 };

static const char *const algorithms[] = {
    NULL,      "oneshot",           "direct", "doubling", "ring",
    "halving", "tree:shape=double", "tree",   "hierarchy"};
enum { kinds_of_algorithm = sizeof algorithms / sizeof algorithms[0] };

typedef enum { plain, prepared, grouped, kinds_of_form } form_t;

typedef struct {
    size_t algorithm, mix, type;
    form_t form;
    int is_in_place, uses_stream, has_states, names_usual; /* the config names a codec, too */
    uint64_t least;                                        /* layer_min_size */
} case_t;

/* One communicator of a rank, and what its calls use. */
typedef struct {
    qcclComm_t comm;
    qcclState_t states[layers];
    unsigned char *send, *recv;
} side_t;

typedef struct {
    int rank;
    qcclCodec_t codecs[kinds_of_codec];
    qcclStream_t stream;
    side_t layered, alone;
} rank_t;

typedef struct {
    world_t twin;
    char complaints[size][128];
    size_t compared[size], not_possible[size], fused[size];
} comparison_t;

static int32_t dimensions_of(size_t layer) { return layer % 5 == 4 ? 1 : (int32_t)(layer % 3); }

static size_t codec_of(const case_t *which, size_t layer)
{
    return which->mix < kinds_of_codec ? which->mix : (which->mix + layer * 5) % kinds_of_codec;
}

static qcclState_t state_of(const side_t *side, const case_t *which, size_t layer)
{
    return which->has_states && layer % 2 == 0 ? side->states[layer] : NULL;
}

static void fill(unsigned char *values, size_t n, const case_t *which, unsigned seed)
{
    const size_t value = types[which->type].bytes;
    size_t i;
    for (i = 0; i < n * value; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (unsigned char)(seed >> 24);
        if (i % value == value - 1)
            values[i] = (unsigned char)((values[i] & 0x80) + types[which->type].least +
                                        ((seed >> 16) & types[which->type].varying));
    }
}

static qcclCollConfig_t config_of(const case_t *which)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.algorithm = algorithms[which->algorithm];
    config.tag = 3;
    return config;
}

static qcclStream_t stream_of(const rank_t *me, const case_t *which)
{
    return on_gpus ? QCCL_STREAM_SYNC : which->uses_stream ? me->stream : NULL;
}

static qcclResult_t make_extra(const rank_t *me, const side_t *side, const case_t *which)
{
    const qcclCollConfig_t config = config_of(which);
    unsigned char *const values = side->recv + all_values * types[which->type].bytes;
    return qcclAllReduceConfig(values, values, extra, types[which->type].type, qcclSum, side->comm,
                               stream_of(me, which), &config);
}

/* Sum and average in turns. */
static qcclRedOp_t op_of(const case_t *which) { return which->mix % 2 ? qcclAvg : qcclSum; }

/* The calls of a state follow one another. */
static qcclResult_t finished(const rank_t *me, qcclResult_t made)
{
    return on_gpus || made != qcclSuccess ? made : qcclStreamSynchronize(me->stream);
}

static qcclResult_t make_layered(const rank_t *me, const case_t *which)
{
    const side_t *const side = &me->layered;
    const unsigned char *const send = which->is_in_place ? side->recv : side->send;
    const qcclStream_t stream = stream_of(me, which);
    qcclCollConfig_t config = config_of(which);
    qcclLayer_t list[layers];
    qcclResult_t result = qcclSuccess;
    qcclColl_t coll = NULL;
    int i;
    memset(list, 0, sizeof list);
    for (i = 0; i < layers; i++) {
        list[i].count = counts[i];
        list[i].codec = me->codecs[codec_of(which, (size_t)i)];
        list[i].state = state_of(side, which, (size_t)i);
        list[i].dimensions = dimensions_of((size_t)i);
    }
    config.layers = list;
    config.nlayers = layers;
    config.layer_min_size = which->least;
    if (which->names_usual) config.codec = me->codecs[1];
    if (which->form != prepared)
        return qcclAllReduceConfig(send, side->recv, all_values, types[which->type].type,
                                   op_of(which), side->comm, stream, &config);
    result = qcclCollCreate(&coll, qcclCollAllReduce, send, side->recv, all_values,
                            types[which->type].type, op_of(which), 0, side->comm, stream, &config);
    memset(list, 0xFF, sizeof list); /* the call has read it */
    for (i = 0; i < repeats && result == qcclSuccess; i++)
        result = finished(me, qcclCollStart(coll));
    if (coll && qcclCollFree(coll) != qcclSuccess) return qcclInternalError;
    return result;
}

static int is_lossless(const case_t *which, size_t layer)
{
    return counts[layer] < (which->least ? which->least : 1024) || dimensions_of(layer) == 1;
}

static qcclResult_t make_alone(const rank_t *me, const case_t *which)
{
    const side_t *const side = &me->alone;
    qcclResult_t result = qcclSuccess;
    size_t i, at = 0;
    for (i = 0; i < layers && result == qcclSuccess; i++) {
        unsigned char *const recv = side->recv + at;
        qcclCollConfig_t config = config_of(which);
        config.codec = me->codecs[codec_of(which, i)];
        if (!config.codec && which->names_usual) config.codec = me->codecs[1];
        if (is_lossless(which, i)) config.codec = me->codecs[kinds_of_codec - 2]; /* "none" */
        config.state = state_of(side, which, i);
        result = qcclAllReduceConfig(which->is_in_place ? recv : side->send + at, recv, counts[i],
                                     types[which->type].type, op_of(which), side->comm,
                                     on_gpus ? QCCL_STREAM_SYNC : NULL, &config);
        at += counts[i] * types[which->type].bytes;
    }
    return result;
}

static qcclResult_t make_group(const rank_t *me, const case_t *which)
{
    qcclResult_t result = qcclGroupStart(), ended;
    if (result == qcclSuccess) result = make_extra(me, &me->layered, which);
    if (result == qcclSuccess) result = make_layered(me, which);
    ended = qcclGroupEnd();
    return result == qcclSuccess ? ended : result;
}

static qcclResult_t run_layered(const rank_t *me, const case_t *which)
{
    qcclResult_t result = qcclSuccess;
    int i;
    if (which->form == prepared) return make_layered(me, which);
    for (i = 0; i < repeats && result == qcclSuccess; i++)
        result =
            finished(me, which->form == grouped ? make_group(me, which) : make_layered(me, which));
    return result;
}

static qcclResult_t run_alone(const rank_t *me, const case_t *which)
{
    const case_t blocking = {which->algorithm,   which->mix, which->type,       plain,
                             which->is_in_place, 0,          which->has_states, which->names_usual,
                             which->least};
    qcclResult_t result = qcclSuccess;
    int i;
    for (i = 0; i < repeats && result == qcclSuccess; i++) {
        if (which->form == grouped) result = make_extra(me, &me->alone, &blocking);
        if (result == qcclSuccess) result = make_alone(me, &blocking);
    }
    return result;
}

static void complain(comparison_t *all, int rank, const case_t *which, const char *what, int number)
{
    if (all->complaints[rank][0] == '\0')
        snprintf(all->complaints[rank], sizeof all->complaints[rank],
                 "%s, mix %d, type %d, form %d, in place %d, states %d: %s %d",
                 algorithms[which->algorithm] ? algorithms[which->algorithm] : "planned",
                 (int)which->mix, (int)which->type, (int)which->form, which->is_in_place,
                 which->has_states, what, number);
}

static int are_states_equal(const rank_t *me, const case_t *which)
{
    int are_equal = 1;
    size_t i;
    for (i = 0; i < layers && which->has_states; i += 2) {
        size_t bytes = 0;
        unsigned char *mine, *other;
        qcclStateBytes(me->layered.states[i], &bytes);
        mine = calloc(bytes, 2);
        other = mine + bytes;
        are_equal &= qcclStateSave(me->layered.states[i], mine, bytes) == qcclSuccess &&
                     qcclStateSave(me->alone.states[i], other, bytes) == qcclSuccess &&
                     memcmp(mine, other, bytes) == 0;
        free(mine);
    }
    return are_equal;
}

static qcclResult_t begin_states(side_t *side, const case_t *which)
{
    qcclResult_t result = qcclSuccess;
    size_t i;
    for (i = 0; i < layers && result == qcclSuccess && which->has_states; i += 2)
        result =
            qcclStateCreate(&side->states[i], side->comm, counts[i], types[which->type].type, NULL);
    return result;
}

static void end_states(side_t *side)
{
    size_t i;
    for (i = 0; i < layers; i++) {
        qcclStateDestroy(side->states[i]);
        side->states[i] = NULL;
    }
}

static uint64_t calls_of(qcclComm_t comm)
{
    qcclCommStats_t stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    return qcclCommGetStats(comm, &stats) == qcclSuccess ? stats.calls : 0;
}

/* A layer's own call is refused, too. Those before it have been made, unlike those of the list, so
 * the layered communicator makes up for them: noise depends on the number of a call. */
static qcclResult_t be_refused(const rank_t *me, const case_t *which, comparison_t *all)
{
    const uint64_t before = calls_of(me->alone.comm);
    const qcclResult_t refused = run_alone(me, which);
    qcclResult_t result = qcclSuccess;
    uint64_t made = calls_of(me->alone.comm) - before;
    if (refused != qcclInvalidArgument)
        complain(all, me->rank, which, "the layers alone:", refused);
    for (; made > 0 && result == qcclSuccess; made--)
        result = finished(me, make_extra(me, &me->layered, which));
    return result;
}

/* Returns the result if the ranks cannot go on. */
static qcclResult_t compare(rank_t *me, const case_t *which, comparison_t *all)
{
    const size_t bytes = (all_values + extra) * types[which->type].bytes;
    const uint64_t before = calls_of(me->layered.comm);
    qcclResult_t result = begin_states(&me->layered, which);
    if (result == qcclSuccess) result = begin_states(&me->alone, which);
    fill(me->layered.send, all_values + extra, which, (unsigned)me->rank + 1);
    memcpy(me->alone.send, me->layered.send, bytes);
    memcpy(me->layered.recv, me->layered.send, bytes);
    memcpy(me->alone.recv, me->layered.send, bytes);
    if (result == qcclSuccess) result = run_layered(me, which);
    if (result == qcclInvalidArgument) { /* the type has no such codec */
        all->not_possible[me->rank]++;
        result = be_refused(me, which, all);
    } else if (result == qcclSuccess) {
        if (calls_of(me->layered.comm) - before < repeats * layers) all->fused[me->rank]++;
        result = run_alone(me, which);
        if (memcmp(me->layered.recv, me->alone.recv, bytes) != 0 ||
            memcmp(me->layered.send, me->alone.send, bytes) != 0)
            complain(all, me->rank, which, "other bits", 0);
        if (!are_states_equal(me, which)) complain(all, me->rank, which, "other states", 0);
        all->compared[me->rank]++;
    }
    if (result != qcclSuccess) complain(all, me->rank, which, qcclGetLastError(NULL), result);
    end_states(&me->layered);
    end_states(&me->alone);
    return result;
}

static qcclResult_t compare_all(rank_t *me, comparison_t *all)
{
    static const uint64_t least[] = {1, 0, 300};
    qcclResult_t result = qcclSuccess;
    /* The number of mixes is odd, so every second case has each mix and each algorithm. */
    const size_t step = on_gpus && !getenv("QTEST_FULL") ? 2 : 1;
    case_t which;
    size_t number;
    memset(&which, 0, sizeof which);
    for (number = step - 1; number < kinds_of_algorithm * mixes && result == qcclSuccess;
         number += step) {
        which.algorithm = number / mixes;
        which.mix = number % mixes;
        which.type = number % 7 < kinds_of_type ? number % 7 : 0;
        which.form = (form_t)((number / 3 + which.algorithm) % kinds_of_form);
        which.is_in_place = (int)(number / 2 + which.algorithm) % 2;
        which.uses_stream = (int)(number / 5) % 2;
        which.has_states = types[which.type].is_float && number % 3 == 0;
        which.names_usual = types[which.type].is_float && number % 4 == 1;
        which.least = least[(number + which.algorithm) % 3];
        result = compare(me, &which, all);
    }
    return result;
}

static int has_room(side_t *side, int rank, size_t bytes)
{
    side->send = take_bytes(rank, bytes);
    side->recv = take_bytes(rank, bytes);
    return side->send && side->recv;
}

static qcclResult_t compare_on_rank(int rank, qcclComm_t comm, void *context)
{
    const size_t bytes = (all_values + extra) * most_bytes;
    comparison_t *const all = context;
    rank_t me = {.rank = rank, .layered = {.comm = comm}, .alone = {.comm = all->twin.comms[rank]}};
    qcclResult_t result = qcclStreamCreate(&me.stream);
    size_t i;
    if (!has_room(&me.layered, rank, bytes) || !has_room(&me.alone, rank, bytes))
        return qcclSystemError;
    for (i = 0; i < kinds_of_codec && result == qcclSuccess; i++)
        if (codecs[i]) result = qcclCodecCreate(&me.codecs[i], codecs[i]);
    if (result == qcclSuccess) result = compare_all(&me, all);
    for (i = 0; i < kinds_of_codec; i++) qcclCodecDestroy(me.codecs[i]);
    qcclStreamDestroy(me.stream);
    give_memory(me.layered.send);
    give_memory(me.layered.recv);
    give_memory(me.alone.send);
    give_memory(me.alone.recv);
    return result;
}

static void layers_have_the_bits_of_calls_of_their_own(void **state)
{
    world_t world = make_tested_world(size);
    comparison_t all;
    outcome_t outcome;
    size_t i, values = 0;
    int rank;
    (void)state;
    for (i = 0; i < layers; i++) values += counts[i];
    assert_int_equal(values, all_values);
    memset(&all, 0, sizeof all);
    all.twin = make_tested_world(size);
    outcome = on_every_rank(&world, compare_on_rank, &all);
    for (rank = 0; rank < size; rank++) {
        assert_string_equal(all.complaints[rank], "");
        assert_true(all.compared[rank] > 2 * all.not_possible[rank]);
        /* Every list has several layers of fewer than 1024 values; on GPUs nothing is fused. */
        assert_int_equal(all.fused[rank], on_gpus ? 0 : all.compared[rank]);
    }
    assert_all_succeed(&outcome, size);
    end_world(&all.twin);
    end_world(&world);
}

/* A list of no value, and the longest one, whose last layer lies behind the vector. */
static qcclResult_t sum_short_layers(int rank, qcclComm_t comm, void *context)
{
    enum { most = on_gpus ? 200 : 16384 }; /* each layer is a call on GPUs */
    qcclLayer_t *const list = calloc(most, sizeof *list);
    float *const values = take_memory(rank, most);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    size_t *const wrong = context;
    int ranks = 0;
    size_t i;
    qcclResult_t result = qcclCommCount(comm, &ranks);
    config.layers = list;
    config.nlayers = 1;
    if (result == qcclSuccess)
        result = qcclAllReduceConfig(NULL, NULL, 0, qcclFloat32, qcclSum, comm,
                                     on_gpus ? QCCL_STREAM_SYNC : NULL, &config);
    config.nlayers = most;
    for (i = 0; i < most - 1; i++) {
        list[i].count = 1;
        values[i] = (float)(i + (size_t)rank);
    }
    values[most - 1] = -1;
    if (result == qcclSuccess)
        result = qcclAllReduceConfig(values, values, most - 1, qcclFloat32, qcclSum, comm,
                                     on_gpus ? QCCL_STREAM_SYNC : NULL, &config);
    for (i = 0; i < most - 1; i++)
        wrong[rank] += (size_t)values[i] != (size_t)ranks * i + (size_t)(ranks * (ranks - 1) / 2);
    wrong[rank] += values[most - 1] >= 0;
    give_memory(values);
    free(list);
    return result;
}

static void lists_may_be_empty_and_long(void **state)
{
    int ranks, rank;
    (void)state;
    for (ranks = 1; ranks <= size; ranks += size - 1) {
        world_t world = make_tested_world(ranks);
        size_t wrong[size] = {0};
        const outcome_t outcome = on_every_rank(&world, sum_short_layers, wrong);
        assert_all_succeed(&outcome, ranks);
        for (rank = 0; rank < ranks; rank++) assert_int_equal(wrong[rank], 0);
        end_world(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_have_the_bits_of_calls_of_their_own),
        cmocka_unit_test(lists_may_be_empty_and_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
