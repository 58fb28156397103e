/* Tests the stride of a call's blocks. Its slow twin is the same call on blocks that follow one
 * another. The strides of the ranks differ. Segments are short, so that blocks have several of
 * them. With ON_GPUS the ranks have emulated GPUs, and fewer cases run. */
#include "tested_world.h"

#include <stdio.h>
#include <string.h>

enum { segment = 1024, filler = 0x5A };

typedef enum { gathers_all, scatters_sum, gathers, scatters, exchanges, forms } form_t;

static const char *const form_names[forms] = {"all_gather", "reduce_scatter", "gather", "scatter",
                                              "all_to_all"};

typedef struct {
    const char *codec, *algorithm;
    int form, in_place, root;
    size_t count;
} strided_t;

typedef struct {
    int size;
    strided_t now;
    qcclCodec_t codec;
    char what[most_ranks][sentence_bytes];
} run_t;

static float value_of(int rank, size_t i)
{
    return drawn_value((uint32_t)rank * 7919u + (uint32_t)i * 2654435761u);
}

/* Rank 0 has no gaps. */
static size_t stride_of(int rank, size_t count) { return rank == 0 ? 0 : count + 7 * (size_t)rank; }

static int has_blocks_to_send(int form)
{
    return form == scatters_sum || form == scatters || form == exchanges;
}
static int has_blocks_to_receive(int form)
{
    return !has_blocks_to_send(form) || form == exchanges;
}

static qcclResult_t call(const run_t *run, qcclComm_t comm, const float *send, float *recv,
                         size_t stride)
{
    const strided_t *const c = &run->now;
    const size_t n = c->count;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.codec = run->codec;
    config.algorithm = c->algorithm;
    config.stride = stride;
    switch (c->form) {
    case gathers_all:
        return qcclAllGatherConfig(send, recv, n, qcclFloat32, comm, QCCL_STREAM_SYNC, &config);
    case scatters_sum:
        return qcclReduceScatterConfig(send, recv, n, qcclFloat32, qcclSum, comm, QCCL_STREAM_SYNC,
                                       &config);
    case gathers:
        return qcclGatherConfig(send, recv, n, qcclFloat32, c->root, comm, QCCL_STREAM_SYNC,
                                &config);
    case scatters:
        return qcclScatterConfig(send, recv, n, qcclFloat32, c->root, comm, QCCL_STREAM_SYNC,
                                 &config);
    default: return qcclAllToAllConfig(send, recv, n, qcclFloat32, comm, QCCL_STREAM_SYNC, &config);
    }
}

/* The buffers of a rank. In place, one of them lies in the other. */
typedef struct {
    float *memory, *send, *recv;
    size_t elements;
} buffers_t;

static void make_buffers(const run_t *run, int rank, size_t stride, int in_place, buffers_t *b)
{
    const strided_t *const c = &run->now;
    const size_t step = stride == 0 ? c->count : stride, own = (size_t)rank * step;
    const size_t whole = (size_t)(run->size - 1) * step + c->count;
    size_t block, i;
    b->elements = 2 * whole;
    b->memory = take_memory(rank, b->elements);
    memset(b->memory, filler, b->elements * sizeof *b->memory);
    b->send = b->memory;
    b->recv = b->memory + whole;
    if (in_place && !has_blocks_to_receive(c->form)) b->recv = b->send + own;
    if (in_place && has_blocks_to_receive(c->form)) b->recv = b->send;
    if (in_place && !has_blocks_to_send(c->form)) b->send = b->recv + own;
    for (block = 0; block < (has_blocks_to_send(c->form) ? (size_t)run->size : 1); block++)
        for (i = 0; i < c->count; i++)
            b->send[block * step + i] = value_of(rank, block * c->count + i);
}

static int is_filler(const float *value)
{
    static const unsigned char fill[sizeof(float)] = {filler, filler, filler, filler};
    return memcmp(value, fill, sizeof fill) == 0;
}

/* Returns how many results are not the twin's, and how many elements between blocks were written.
 */
static size_t count_wrong(const run_t *run, const buffers_t *b, size_t stride,
                          const buffers_t *twin)
{
    const strided_t *const c = &run->now;
    const size_t size = (size_t)run->size, step = stride == 0 ? c->count : stride;
    const size_t blocks = has_blocks_to_receive(c->form) ? size : 1;
    size_t wrong = 0, block, i;
    for (block = 0; block < blocks; block++)
        for (i = 0; i < c->count; i++)
            wrong += memcmp(b->recv + block * step + i, twin->recv + block * c->count + i,
                            sizeof(float)) != 0;
    for (i = 0; i < (size - 1) * step; i++) {
        if (i % step < c->count) continue;
        if (has_blocks_to_receive(c->form)) wrong += !is_filler(b->recv + i);
        if (has_blocks_to_send(c->form)) wrong += !is_filler(b->send + i);
    }
    return wrong;
}

static qcclResult_t run_case(int rank, qcclComm_t comm, void *context)
{
    run_t *const run = context;
    const strided_t *const c = &run->now;
    const size_t stride = stride_of(rank, c->count);
    const int is_in_place =
        c->in_place && (rank == c->root || (c->form != gathers && c->form != scatters));
    buffers_t b, twin;
    qcclResult_t done;
    size_t wrong = 0;
    make_buffers(run, rank, stride, is_in_place, &b);
    make_buffers(run, rank, 0, 0, &twin);
    done = call(run, comm, twin.send, twin.recv, 0);
    if (done == qcclSuccess) done = call(run, comm, b.send, b.recv, stride);
    if (done == qcclSuccess && (c->form != gathers || rank == c->root))
        wrong = count_wrong(run, &b, stride, &twin);
    snprintf(run->what[rank], sentence_bytes, "%zu wrong values", wrong);
    give_memory(b.memory);
    give_memory(twin.memory);
    return done;
}

static void check_case(const world_t *world, run_t *run)
{
    const strided_t *const c = &run->now;
    const outcome_t outcome = on_every_rank(world, run_case, run);
    int rank;
    for (rank = 0; rank < world->size; rank++) {
        if (outcome.result[rank] == qcclSuccess && strcmp(run->what[rank], "0 wrong values") == 0)
            continue;
        print_error("%s of %zu, %d ranks, %s, codec %s, in place %d: rank %d: %s %s\n",
                    form_names[c->form], c->count, world->size,
                    c->algorithm ? c->algorithm : "auto", c->codec, c->in_place, rank,
                    outcome.sentence[rank],
                    outcome.result[rank] == qcclSuccess ? run->what[rank] : "");
        fail();
    }
}

static const char *const algorithms[forms][8] = {
    {NULL, "direct", "ring", "halving", "oneshot", "bruck", "hierarchy", "neighbour"},
    {NULL, "direct", "ring", "halving", "oneshot", "hierarchy"},
    {NULL, "direct", "tree", "tree:shape=double", "oneshot"},
    {NULL, "direct", "tree", "tree:shape=double", "oneshot"},
    {NULL, "direct", "pairwise", "bruck", "oneshot", "hierarchy"}};

static void run_sizes(const world_t *world, run_t *run)
{
    static const size_t counts[] = {0, 1, 17, 1000, 3 * segment, 5 * segment + 3};
    size_t i;
    for (i = 0; i < sizeof counts / sizeof *counts; i++)
        for (run->now.in_place = 0; run->now.in_place < 2; run->now.in_place++) {
            if (on_gpus && i % 2 == 0) continue;
            run->now.count = counts[i];
            check_case(world, run);
        }
}

static void results_are_those_of_dense_blocks(void **state)
{
    static const char *const codecs[] = {"none", "int8:min=0", "topk:ratio=0.2,min=0"};
    char bytes[32];
    int size;
    size_t codec, algorithm;
    (void)state;
    snprintf(bytes, sizeof bytes, "%zu", segment * sizeof(float));
    setenv("QCCL_SEGMENT", bytes, 1);
    for (size = 2; size <= most_tested; size += on_gpus ? 1 : 3) {
        world_t world = make_tested_world(size);
        for (codec = 0; codec < sizeof codecs / sizeof *codecs; codec++) {
            run_t run;
            memset(&run, 0, sizeof run);
            run.size = size;
            run.now.codec = codecs[codec];
            run.now.root = size - 1;
            assert_int_equal(qcclCodecCreate(&run.codec, codecs[codec]), qcclSuccess);
            for (run.now.form = 0; run.now.form < forms; run.now.form++)
                for (algorithm = 0; algorithm < 8; algorithm++) {
                    run.now.algorithm = algorithms[run.now.form][algorithm];
                    if (algorithm > 0 && !run.now.algorithm) break;
                    run_sizes(&world, &run);
                }
            assert_int_equal(qcclCodecDestroy(run.codec), qcclSuccess);
        }
        end_world(&world);
    }
    unsetenv("QCCL_SEGMENT");
}

/* The two vectors lie in one another's gaps. */
static qcclResult_t exchange_interleaved(int rank, qcclComm_t comm, void *context)
{
    enum { count = 100, ranks = 2 };
    int *const wrong = context;
    float *const memory = take_memory(rank, 2 * ranks * count);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclResult_t done;
    int block, i;
    config.stride = 2 * count;
    for (block = 0; block < ranks; block++)
        for (i = 0; i < count; i++) {
            memory[2 * block * count + i] = (float)(1000 * rank + 100 * block + i % 100);
            memory[(2 * block + 1) * count + i] = -1;
        }
    done = qcclAllToAllConfig(memory, memory + count, count, qcclFloat32, comm, QCCL_STREAM_SYNC,
                              &config);
    for (block = 0; block < ranks; block++)
        for (i = 0; i < count; i++) {
            wrong[rank] +=
                memory[(2 * block + 1) * count + i] != (float)(1000 * block + 100 * rank + i % 100);
            wrong[rank] +=
                memory[2 * block * count + i] != (float)(1000 * rank + 100 * block + i % 100);
        }
    if (done == qcclSuccess &&
        qcclAllToAllConfig(memory, memory + count - 1, count, qcclFloat32, comm, QCCL_STREAM_SYNC,
                           &config) != qcclInvalidArgument)
        done = qcclInternalError;
    give_memory(memory);
    return done;
}

static void vectors_may_lie_in_each_others_gaps(void **state)
{
    world_t world = make_tested_world(2);
    int wrong[2] = {0, 0};
    const outcome_t outcome = on_every_rank(&world, exchange_interleaved, wrong);
    (void)state;
    assert_all_succeed(&outcome, 2);
    assert_int_equal(wrong[0] + wrong[1], 0);
    assert_says(qcclGetLastError(world.comms[0]), "overlap");
    end_world(&world);
}

/* A group fuses the two calls, whose blocks lie apart on rank 0 alone. */
static qcclResult_t gather_in_group(int rank, qcclComm_t comm, void *context)
{
    enum { count = 50, calls = 2, most_stride = 80, vector = most_stride + count };
    const int stride = rank == 0 ? most_stride : count;
    int *const wrong = context;
    float *const memory = take_memory(rank, calls * (count + vector));
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclResult_t done;
    int call, i;
    config.stride = (size_t)stride;
    for (i = 0; i < calls * (count + vector); i++) memory[i] = -1;
    qcclGroupStart();
    for (call = 0; call < calls; call++) {
        float *const send = memory + call * (count + vector);
        for (i = 0; i < count; i++) send[i] = (float)(1000 * call + 100 * rank + i);
        qcclAllGatherConfig(send, send + count, count, qcclFloat32, comm, QCCL_STREAM_SYNC,
                            &config);
    }
    done = qcclGroupEnd();
    for (call = 0; call < calls; call++)
        for (i = 0; i < vector; i++) {
            const float *const recv = memory + call * (count + vector) + count;
            const int block = i / stride, at = i % stride;
            const int is_value = block < 2 && at < count;
            const float expected = is_value ? (float)(1000 * call + 100 * block + at) : -1;
            wrong[rank] += recv[i] != expected;
        }
    give_memory(memory);
    return done;
}

static void a_group_keeps_strides(void **state)
{
    world_t world = make_tested_world(2);
    int wrong[2] = {0, 0};
    const outcome_t outcome = on_every_rank(&world, gather_in_group, wrong);
    (void)state;
    assert_all_succeed(&outcome, 2);
    assert_int_equal(wrong[0] + wrong[1], 0);
    end_world(&world);
}

static void assert_refused(qcclComm_t comm, qcclResult_t result, const char *because)
{
    assert_int_equal(result, qcclInvalidArgument);
    assert_says(qcclGetLastError(comm), because);
}

static void impossible_strides_are_refused(void **state)
{
    world_t world = make_tested_world(2);
    const qcclComm_t comm = world.comms[0];
    float *const memory = take_memory(0, 64);
    const size_t counts[2] = {4, 4};
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclCodec_t guarded = NULL;
    (void)state;
    config.stride = 3;
    assert_refused(
        comm,
        qcclAllToAllConfig(memory, memory + 32, 4, qcclFloat32, comm, QCCL_STREAM_SYNC, &config),
        "config: stride is 3, but a block has 4 elements");
    config.stride = 8;
    assert_refused(comm,
                   qcclAllReduceConfig(memory, memory + 32, 4, qcclFloat32, qcclSum, comm,
                                       QCCL_STREAM_SYNC, &config),
                   "config: stride is 8, but all_reduce has no blocks of ranks");
    assert_refused(comm, qcclBarrierConfig(comm, QCCL_STREAM_SYNC, &config),
                   "config: stride is 8, but barrier has no blocks of ranks");
    assert_refused(comm,
                   qcclAllGatherVConfig(memory, memory + 32, counts, NULL, qcclFloat32, comm,
                                        QCCL_STREAM_SYNC, &config),
                   "config: stride is 8, but the parts of all_gather_v lie where displs says");
    config.stride = SIZE_MAX / 4;
    assert_refused(
        comm,
        qcclAllGatherConfig(memory, memory + 32, 4, qcclFloat32, comm, QCCL_STREAM_SYNC, &config),
        "config: stride is ");
    config.stride = 8;
    assert_int_equal(qcclCodecCreate(&guarded, "int8:guard=nmse:1e-3"), qcclSuccess);
    config.codec = guarded;
    assert_refused(comm,
                   qcclReduceScatterConfig(memory, memory + 32, 4, qcclFloat32, qcclSum, comm,
                                           QCCL_STREAM_SYNC, &config),
                   "has no guards with a stride");
    assert_int_equal(qcclCodecDestroy(guarded), qcclSuccess);
    if (!on_gpus) assert_works(&world);
    give_memory(memory);
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_dense_blocks),
        cmocka_unit_test(vectors_may_lie_in_each_others_gaps),
        cmocka_unit_test(a_group_keeps_strides),
        cmocka_unit_test(impossible_strides_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
