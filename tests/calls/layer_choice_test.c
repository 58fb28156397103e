/* Tests the codecs of layers through the C API: the choice keeps the error of the uniform codec
 * with fewer bits, as encodes and decodes of the same values show; all ranks take the choice of
 * rank 0; and what cannot be is refused. With ON_GPUS the ranks have emulated GPUs. */
#include "tested_world.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { layers_made = 6, ranks = 3 };

static const size_t counts[layers_made] = {5000, 40000, 777, 0, 12288, 65536};
/* How large the values of a layer are, and how much larger a few of them. */
static const float strengths[layers_made] = {30, 0.01f, 1, 1, 2, 0.3f};
static const float outliers[layers_made] = {1, 1, 50, 1, 8, 1};

static float *make_values(int layer, uint32_t seed)
{
    float *const values = malloc((counts[layer] + 1) * sizeof *values);
    size_t i;
    for (i = 0; i < counts[layer]; i++) {
        const float drawn = drawn_value((uint32_t)i * 2654435761u + seed + (uint32_t)layer * 97u);
        values[i] = drawn * strengths[layer] * (i % 100 == 7 ? outliers[layer] : 1);
    }
    return values;
}

static void note_all(qcclLayerCodecs_t layers, uint32_t seed)
{
    int layer;
    for (layer = 0; layer < layers_made; layer++) {
        float *const values = make_values(layer, seed);
        assert_int_equal(qcclLayerCodecsNote(layers, (size_t)layer, values), qcclSuccess);
        free(values);
    }
}

typedef struct {
    double bytes, error;
} cost_t;

static cost_t cost_of(qcclCodec_t codec, const float *values, size_t count)
{
    cost_t cost = {0, 0};
    size_t bytes, i;
    float *const back = malloc((count + 1) * sizeof *back);
    void *encoded;
    assert_int_equal(qcclCodecMaxEncodedBytes(codec, count, qcclFloat32, &bytes), qcclSuccess);
    encoded = malloc(bytes);
    assert_int_equal(
        qcclCodecEncode(codec, values, count, qcclFloat32, encoded, bytes, &bytes, NULL),
        qcclSuccess);
    assert_int_equal(qcclCodecDecode(codec, encoded, bytes, back, count, qcclFloat32, NULL),
                     qcclSuccess);
    cost.bytes = (double)bytes;
    for (i = 0; i < count; i++) {
        const double error = (double)back[i] - (double)values[i];
        cost.error += error * error;
    }
    free(encoded);
    free(back);
    return cost;
}

/* With `uniform`, or with the codecs of the layers if that is NULL. */
static cost_t cost_of_all(qcclLayerCodecs_t layers, qcclCodec_t uniform, uint32_t seed)
{
    cost_t sum = {0, 0};
    int layer;
    for (layer = 0; layer < layers_made; layer++) {
        float *const values = make_values(layer, seed);
        qcclCodec_t codec = uniform;
        cost_t cost;
        if (!codec)
            assert_int_equal(qcclLayerCodecsGet(layers, (size_t)layer, &codec), qcclSuccess);
        cost = cost_of(codec, values, counts[layer]);
        sum.bytes += cost.bytes;
        sum.error += cost.error;
        free(values);
    }
    return sum;
}

static qcclLayerCodecs_t make_layers(const char *uniform, const char *candidates)
{
    qcclLayerCodecs_t layers = NULL;
    const qcclResult_t made =
        qcclLayerCodecsCreate(&layers, counts, layers_made, qcclFloat32, uniform, candidates);
    if (made != qcclSuccess) fail_msg("%s", qcclGetLastError(NULL));
    return layers;
}

static void described(qcclLayerCodecs_t layers, char *text, size_t room)
{
    size_t bytes = 0, told;
    assert_int_equal(qcclLayerCodecsDescribe(layers, NULL, &bytes), qcclSuccess);
    assert_true(bytes > 1 && bytes <= room);
    told = bytes - 1;
    assert_int_equal(qcclLayerCodecsDescribe(layers, text, &told), qcclInvalidArgument);
    assert_int_equal(told, bytes);
    assert_int_equal(qcclLayerCodecsDescribe(layers, text, &told), qcclSuccess);
    assert_int_equal(strlen(text) + 1, bytes);
}

static void a_choice_keeps_the_error_with_fewer_bytes(void **state)
{
    static const char *const uniforms[] = {"int4", "int3:block=64", "minmax:bits=4",
                                           "int8:round=stochastic"};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof uniforms / sizeof *uniforms; i++) {
        const qcclLayerCodecs_t layers = make_layers(uniforms[i], NULL);
        qcclCodec_t uniform;
        cost_t before, chosen;
        char text[4096], part[64];
        assert_int_equal(qcclCodecCreate(&uniform, uniforms[i]), qcclSuccess);
        before = cost_of_all(layers, uniform, 1);
        chosen = cost_of_all(layers, NULL, 1); /* nothing is decided yet */
        assert_true(chosen.bytes == before.bytes && chosen.error == before.error);
        note_all(layers, 1);
        assert_int_equal(qcclLayerCodecsDecide(layers, NULL), qcclSuccess);
        chosen = cost_of_all(layers, NULL, 1);
        assert_true(chosen.bytes < before.bytes * 0.97);
        /* Only noise differs between what was noted and what is encoded here. */
        assert_true(chosen.error <= before.error * (i == 3 ? 1.02 : 1 + 1e-9));
        described(layers, text, sizeof text);
        snprintf(part, sizeof part, " with %s", uniforms[i]);
        assert_says(text, part);
        assert_says(text, "layer 2: count 777, codec ");
        qcclCodecDestroy(uniform);
        assert_int_equal(qcclLayerCodecsDestroy(layers), qcclSuccess);
    }
}

/* Notes are averaged, also where layers have different numbers of them, and forgotten. */
static void decisions_follow_the_notes_since_the_last_one(void **state)
{
    const qcclLayerCodecs_t once = make_layers("int4", NULL), often = make_layers("int4", NULL);
    char text[4096], other[4096];
    float *const strong = make_values(0, 1);
    (void)state;
    note_all(once, 1);
    note_all(often, 1);
    assert_int_equal(qcclLayerCodecsNote(often, 0, strong), qcclSuccess);
    strong[17] = NAN; /* this note does not count */
    assert_int_equal(qcclLayerCodecsNote(often, 0, strong), qcclSuccess);
    strong[17] = INFINITY;
    assert_int_equal(qcclLayerCodecsNote(often, 0, strong), qcclSuccess);
    assert_int_equal(qcclLayerCodecsDecide(once, NULL), qcclSuccess);
    assert_int_equal(qcclLayerCodecsDecide(often, NULL), qcclSuccess);
    described(once, text, sizeof text);
    described(often, other, sizeof other);
    assert_string_equal(text, other);
    assert_int_equal(qcclLayerCodecsDecide(once, NULL), qcclSuccess); /* without notes */
    described(once, text, sizeof text);
    assert_string_not_equal(text, other);
    assert_says(text, "all layers: 4.5");
    free(strong);
    qcclLayerCodecsDestroy(once);
    qcclLayerCodecsDestroy(often);
}

typedef struct {
    qcclLayerCodecs_t layers[ranks];
    const char *unlike; /* candidates of the last rank; NULL: those of the others */
} shared_t;

static qcclResult_t decide(int rank, qcclComm_t comm, void *context)
{
    return qcclLayerCodecsDecide(((shared_t *)context)->layers[rank], comm);
}

static void all_ranks_take_the_choice_of_rank_0(void **state)
{
    const qcclLayerCodecs_t alone = make_layers("int4", NULL);
    world_t world = make_tested_world(ranks);
    shared_t shared = {{NULL}, NULL};
    outcome_t outcome;
    char text[4096], other[4096];
    int rank;
    (void)state;
    for (rank = 0; rank < ranks; rank++) {
        shared.layers[rank] = make_layers("int4", NULL);
        if (rank != 1) note_all(shared.layers[rank], 1 + (uint32_t)rank * 1000);
    }
    note_all(alone, 1);
    qcclLayerCodecsDecide(alone, NULL);
    described(alone, text, sizeof text);
    outcome = on_every_rank(&world, decide, &shared);
    assert_all_succeed(&outcome, ranks);
    for (rank = 0; rank < ranks; rank++) {
        described(shared.layers[rank], other, sizeof other);
        assert_string_equal(text, other);
    }
    /* What was noted before is forgotten on every rank. */
    outcome = on_every_rank(&world, decide, &shared);
    assert_all_succeed(&outcome, ranks);
    described(shared.layers[0], text, sizeof text);
    described(shared.layers[2], other, sizeof other);
    assert_string_equal(text, other);
    assert_says(text, "all layers: 4.5");
    for (rank = 0; rank < ranks; rank++) qcclLayerCodecsDestroy(shared.layers[rank]);
    qcclLayerCodecsDestroy(alone);
    end_world(&world);
}

/* The other rank notes values for rank 0, which waits. */
static qcclResult_t note_and_decide(int rank, qcclComm_t comm, void *context)
{
    shared_t *const shared = context;
    if (rank == 1) {
        sleep_ms(100);
        note_all(shared->layers[0], 1);
    }
    return qcclLayerCodecsDecide(shared->layers[rank], comm);
}

static void notes_during_a_decision_are_for_the_next_one(void **state)
{
    world_t world = make_tested_world(2);
    shared_t shared = {{make_layers("int4", NULL), make_layers("int4", NULL)}, NULL};
    outcome_t outcome;
    char text[4096];
    (void)state;
    outcome = on_every_rank(&world, note_and_decide, &shared);
    assert_all_succeed(&outcome, 2);
    described(shared.layers[0], text, sizeof text);
    assert_says(text, "all layers: 4.5");
    assert_int_equal(qcclLayerCodecsDecide(shared.layers[0], NULL), qcclSuccess);
    described(shared.layers[0], text, sizeof text);
    assert_null(strstr(text, "all layers: 4.5"));
    qcclLayerCodecsDestroy(shared.layers[0]);
    qcclLayerCodecsDestroy(shared.layers[1]);
    end_world(&world);
}

static void ranks_that_choose_from_others_are_named(void **state)
{
    static const char *const parts[] = {"rank 2 chooses codecs for other layers", "count"};
    int turn;
    (void)state;
    for (turn = 0; turn < 2; turn++) {
        world_t world = make_tested_world(ranks);
        shared_t shared = {{NULL}, NULL};
        outcome_t outcome;
        int rank;
        for (rank = 0; rank < ranks; rank++) {
            const size_t nlayers = rank == 2 && turn == 1 ? layers_made - 1 : layers_made;
            const char *const candidates = rank == 2 && turn == 0 ? "int4,int5" : "int4,int6";
            assert_int_equal(qcclLayerCodecsCreate(&shared.layers[rank], counts, nlayers,
                                                   qcclFloat32, NULL, candidates),
                             qcclSuccess);
        }
        outcome = on_every_rank(&world, decide, &shared);
        assert_all_say(&outcome, ranks, qcclMismatch, parts[turn]);
        for (rank = 0; rank < ranks; rank++) qcclLayerCodecsDestroy(shared.layers[rank]);
        end_world(&world);
    }
}

static void refused(qcclResult_t result, qcclResult_t expected, const char *part)
{
    assert_int_equal(result, expected);
    assert_says(qcclGetLastError(NULL), part);
}

static void what_cannot_be_is_refused(void **state)
{
    qcclLayerCodecs_t layers = NULL;
    qcclCodec_t codec = NULL;
    char many[4096] = "int4";
    size_t bytes = 0;
    int i;
    (void)state;
#define CREATE(...) refused(qcclLayerCodecsCreate(__VA_ARGS__)
    CREATE(NULL, counts, 2, qcclFloat32, NULL, NULL), qcclInvalidArgument, "layers_out is NULL");
    CREATE(&layers, NULL, 2, qcclFloat32, NULL, NULL), qcclInvalidArgument, "counts is NULL");
    CREATE(&layers, counts, 0, qcclFloat32, NULL, NULL), qcclInvalidArgument, "nlayers is 0");
    CREATE(&layers, counts, 16385, qcclFloat32, NULL, NULL), qcclInvalidArgument, "16385");
    CREATE(&layers, counts, 2, qcclInt32, NULL, NULL), qcclInvalidArgument, "int32");
    CREATE(&layers, counts, 2, 999, NULL, NULL), qcclInvalidArgument, "type is 999");
    CREATE(&layers, counts, 2, qcclFloat32, "int99", NULL), qcclInvalidArgument, "int99");
    CREATE(&layers, counts, 2, qcclFloat32, NULL, "int4,who"), qcclInvalidArgument, "who");
    CREATE(&layers, counts, 2, qcclFloat32, "auto:nmse=1e-3", NULL), qcclInvalidArgument, "auto");
    CREATE(&layers, counts, 2, qcclFloat32, NULL, "int8:guard=nmse:1e-2"), qcclInvalidArgument,
           "guard");
    CREATE(&layers, counts, 2, qcclFloat32, NULL, "int8:owner=exact"), qcclInvalidArgument,
           "owner");
    for (i = 1; i <= 256; i++) sprintf(many + strlen(many), ",int4:block=%d", 32 + 32 * i);
    CREATE(&layers, counts, 2, qcclFloat32, NULL, many), qcclInvalidArgument, "257 codecs");
#undef CREATE
    assert_null(layers);
    layers = make_layers(NULL, "int6");
    refused(qcclLayerCodecsNote(layers, layers_made, many), qcclInvalidArgument, "layer is 6");
    refused(qcclLayerCodecsNote(layers, 1, NULL), qcclInvalidArgument, "values is NULL");
    assert_int_equal(qcclLayerCodecsNote(layers, 3, NULL), qcclSuccess); /* its count is 0 */
    refused(qcclLayerCodecsGet(layers, layers_made, &codec), qcclInvalidArgument, "layer is 6");
    refused(qcclLayerCodecsGet(layers, 0, NULL), qcclInvalidArgument, "codec_out is NULL");
    refused(qcclLayerCodecsDescribe(layers, many, NULL), qcclInvalidArgument, "bytes is NULL");
    refused(qcclLayerCodecsDecide(NULL, NULL), qcclInvalidArgument, "layers is NULL");
    refused(qcclLayerCodecsDecide((qcclLayerCodecs_t)&bytes, NULL), qcclInvalidArgument,
            "no qcclLayerCodecsCreate made");
    assert_int_equal(qcclLayerCodecsGet(layers, 0, &codec), qcclSuccess);
    assert_int_equal(qcclLayerCodecsDestroy(NULL), qcclSuccess);
    assert_int_equal(qcclLayerCodecsDestroy(layers), qcclSuccess);
    refused(qcclLayerCodecsDestroy(layers), qcclInvalidUsage, "destroyed");
    refused(qcclLayerCodecsGet(layers, 0, &codec), qcclInvalidUsage, "destroyed");
    refused(qcclCodecMaxEncodedBytes(codec, 1, qcclFloat32, &bytes), qcclInvalidUsage, "destroyed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_choice_keeps_the_error_with_fewer_bytes),
        cmocka_unit_test(decisions_follow_the_notes_since_the_last_one),
        cmocka_unit_test(all_ranks_take_the_choice_of_rank_0),
        cmocka_unit_test(notes_during_a_decision_are_for_the_next_one),
        cmocka_unit_test(ranks_that_choose_from_others_are_named),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
