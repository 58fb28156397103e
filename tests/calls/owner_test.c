/* Tests what a rank keeps of the values that it gives to all ranks. With owner=exact it has them as
 * they are, and in place they are not written; the other ranks have the bytes that a twin
 * communicator gives them, whose calls are the same but for the key. Segments are short, so that
 * long blocks have several of them. With ON_GPUS the ranks have emulated GPUs, and fewer cases run.
 */
#include "tested_world.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { segment = 1024, page_values = 4096 / sizeof(float) };

typedef enum { gathers, gathers_strided, gathers_v, broadcasts, forms } form_t;

static const char *const form_names[forms] = {"all_gather", "all_gather with a stride",
                                              "all_gather_v", "broadcast"};

typedef struct {
    int form, in_place, root;
    const char *algorithm;
    size_t count;
} owned_t;

typedef struct {
    const world_t *twins;
    owned_t now;
    qcclCodec_t exact, decoded;
    char what[most_ranks][sentence_bytes];
    size_t changed[most_ranks]; /* own values that the twin has otherwise */
} run_t;

static float value_of(int rank, size_t i)
{
    return drawn_value((uint32_t)rank * 7919u + (uint32_t)i * 2654435761u);
}

static size_t count_of(const owned_t *c, int rank)
{
    if (c->form == broadcasts) return rank == c->root ? c->count : 0;
    return c->form != gathers_v ? c->count : rank == 1 ? 0 : c->count + 5 * (size_t)rank;
}

static size_t stride_of(const owned_t *c) { return c->form == gathers_strided ? c->count + 9 : 0; }

/* Where the values of a rank are in the results. */
static size_t start_of(const owned_t *c, int rank)
{
    size_t start = 0;
    int before;
    if (c->form == gathers_strided) return (size_t)rank * stride_of(c);
    for (before = 0; before < rank; before++) start += count_of(c, before);
    return start;
}

static qcclResult_t call(const owned_t *c, qcclComm_t comm, int size, qcclCodec_t codec,
                         const float *send, float *recv, qcclStream_t stream)
{
    size_t counts[most_ranks];
    int rank;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.codec = codec;
    config.algorithm = c->algorithm;
    config.stride = stride_of(c);
    for (rank = 0; rank < size; rank++) counts[rank] = count_of(c, rank);
    switch (c->form) {
    case broadcasts:
        return qcclBroadcastConfig(send, recv, c->count, qcclFloat32, c->root, comm, stream,
                                   &config);
    case gathers_v:
        return qcclAllGatherVConfig(send, recv, counts, NULL, qcclFloat32, comm, stream, &config);
    default: return qcclAllGatherConfig(send, recv, c->count, qcclFloat32, comm, stream, &config);
    }
}

/* Makes the call with this codec, in memory that the caller gives back. */
static qcclResult_t make(const owned_t *c, int rank, qcclComm_t comm, int size, qcclCodec_t codec,
                         float **memory, float **recv)
{
    const size_t whole = start_of(c, size - 1) + count_of(c, size - 1), own = count_of(c, rank);
    size_t i;
    float *send;
    *memory = take_memory(rank, whole + own);
    memset(*memory, 0x5A, (whole + own) * sizeof **memory);
    *recv = *memory;
    send = c->in_place ? *recv + start_of(c, rank) : *memory + whole;
    for (i = 0; i < own; i++) send[i] = value_of(rank, i);
    return call(c, comm, size, codec, send, *recv, QCCL_STREAM_SYNC);
}

static qcclResult_t run_case(int rank, qcclComm_t comm, void *context)
{
    run_t *const run = context;
    const owned_t *const c = &run->now;
    const int size = run->twins->size;
    float *memory, *recv, *twin_memory, *twin;
    size_t i, wrong = 0;
    int owner;
    qcclResult_t done = make(c, rank, comm, size, run->exact, &memory, &recv);
    const qcclResult_t same =
        make(c, rank, run->twins->comms[rank], size, run->decoded, &twin_memory, &twin);
    if (done == qcclSuccess) done = same;
    for (owner = 0; done == qcclSuccess && owner < size; owner++)
        for (i = 0; i < count_of(c, owner); i++) {
            const size_t at = start_of(c, owner) + i;
            const float own = value_of(owner, i);
            const int is_exact = memcmp(twin + at, &own, sizeof own) == 0;
            wrong += memcmp(recv + at, owner == rank ? &own : twin + at, sizeof own) != 0;
            run->changed[rank] += owner == rank && !is_exact;
        }
    snprintf(run->what[rank], sentence_bytes, "%zu wrong values", wrong);
    give_memory(memory);
    give_memory(twin_memory);
    return done;
}

static void check_case(const world_t *world, run_t *run, const char *codec)
{
    const owned_t *const c = &run->now;
    const outcome_t outcome = on_every_rank(world, run_case, run);
    int rank;
    for (rank = 0; rank < world->size; rank++) {
        if (outcome.result[rank] == qcclSuccess && strcmp(run->what[rank], "0 wrong values") == 0)
            continue;
        print_error(
            "%s of %zu, %d ranks, %s, codec %s, in place %d: rank %d: %s %s\n", form_names[c->form],
            c->count, world->size, c->algorithm ? c->algorithm : "auto", codec, c->in_place, rank,
            outcome.sentence[rank], outcome.result[rank] == qcclSuccess ? run->what[rank] : "");
        fail();
    }
}

static const char *const algorithms[2][8] = {
    {NULL, "direct", "ring", "halving", "oneshot", "bruck", "hierarchy", "neighbour"},
    {NULL, "direct", "ring", "tree", "oneshot", "tree:shape=double", "hierarchy"}};

static void run_forms(const world_t *world, run_t *run, const char *codec)
{
    static const size_t counts[] = {0, 1, 33, 1000, 3 * segment, 5 * segment + 3};
    size_t algorithm, i;
    for (run->now.form = 0; run->now.form < forms; run->now.form++)
        for (algorithm = 0; algorithm < 8; algorithm++) {
            run->now.algorithm = algorithms[run->now.form == broadcasts][algorithm];
            if (algorithm > 0 && !run->now.algorithm) break;
            for (i = 0; i < sizeof counts / sizeof *counts; i++)
                for (run->now.in_place = 0; run->now.in_place < 2; run->now.in_place++) {
                    if (on_gpus && (i + algorithm) % 3 != 0) continue;
                    run->now.count = counts[i];
                    check_case(world, run, codec);
                }
        }
}

static void make_codecs(run_t *run, const char *spec)
{
    char with_key[64];
    snprintf(with_key, sizeof with_key, "%s,owner=exact", spec);
    assert_int_equal(qcclCodecCreate(&run->exact, with_key), qcclSuccess);
    assert_int_equal(qcclCodecCreate(&run->decoded, spec), qcclSuccess);
}

static void end_codecs(run_t *run)
{
    assert_int_equal(qcclCodecDestroy(run->exact), qcclSuccess);
    assert_int_equal(qcclCodecDestroy(run->decoded), qcclSuccess);
}

static void owners_keep_their_values(void **state)
{
    static const char *const codecs[] = {"int8:min=0", "int4:min=0,round=stochastic,seed=3",
                                         "topk:min=0,ratio=0.2", "minmax:min=0,bits=4,bucket=64",
                                         "auto:min=0,bits=6"};
    char bytes[32];
    int size, rank;
    size_t codec;
    (void)state;
    snprintf(bytes, sizeof bytes, "%zu", segment * sizeof(float));
    setenv("QCCL_SEGMENT", bytes, 1);
    for (size = 2; size <= most_tested; size += on_gpus ? 1 : 3) {
        world_t world = make_tested_world(size), twins = make_tested_world(size);
        for (codec = 0; codec < sizeof codecs / sizeof *codecs; codec++) {
            run_t run;
            memset(&run, 0, sizeof run);
            run.twins = &twins;
            run.now.root = size - 1;
            make_codecs(&run, codecs[codec]);
            run_forms(&world, &run, codecs[codec]);
            for (rank = 0; rank < size; rank++) assert_true(run.changed[rank] > 0);
            end_codecs(&run);
        }
        end_world(&world);
        end_world(&twins);
    }
    unsetenv("QCCL_SEGMENT");
}

/* A guard sees the same values, and a call that it makes lossless is exact on all ranks. */
static void guards_watch_such_calls_too(void **state)
{
    const int size = 2;
    world_t world = make_tested_world(size), twins = make_tested_world(size);
    run_t run;
    int round;
    (void)state;
    memset(&run, 0, sizeof run);
    run.twins = &twins;
    run.now.count = 5000;
    make_codecs(&run, "int2:min=0,guard=nmse:1e-6");
    for (round = 0; round < 4; round++)
        for (run.now.form = gathers; run.now.form < forms; run.now.form += broadcasts)
            check_case(&world, &run, "int2 with a guard");
    end_codecs(&run);
    end_world(&world);
    end_world(&twins);
}

#ifndef ON_GPUS
/* ---- Memory that a rank may only read */

/* Returns memory in which the values of the rank can only be read. */
static float *take_read_only(const owned_t *c, int rank, int size)
{
    const size_t whole = start_of(c, size - 1) + count_of(c, size - 1), own = count_of(c, rank);
    float *const recv = mmap(NULL, whole * sizeof *recv, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    float *const mine = recv + start_of(c, rank);
    size_t i;
    if (recv == MAP_FAILED) abort();
    for (i = 0; i < own; i++) mine[i] = value_of(rank, i);
    if (own > 0 && mprotect(mine, own * sizeof *mine, PROT_READ) != 0) abort();
    return recv;
}

static void give_read_only(const owned_t *c, float *recv, int size)
{
    munmap(recv, (start_of(c, size - 1) + count_of(c, size - 1)) * sizeof *recv);
}

typedef enum { plainly, on_stream, in_group, prepared, ways } way_t;

typedef struct {
    owned_t now;
    int way, size;
    qcclCodec_t exact;
} read_only_t;

static qcclResult_t make_prepared(const read_only_t *job, qcclComm_t comm, const float *send,
                                  float *recv)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclColl_t coll = NULL;
    qcclResult_t done;
    config.codec = job->exact;
    config.algorithm = job->now.algorithm;
    done = qcclCollCreate(
        &coll, job->now.form == broadcasts ? qcclCollBroadcast : qcclCollAllGather, send, recv,
        job->now.count, qcclFloat32, qcclSum, job->now.root, comm, QCCL_STREAM_SYNC, &config);
    if (done == qcclSuccess) done = qcclCollStart(coll);
    if (done == qcclSuccess) done = qcclCollStart(coll);
    if (coll) qcclCollFree(coll);
    return done;
}

/* Writing the memory would end the process. */
static qcclResult_t call_on_read_only(int rank, qcclComm_t comm, void *context)
{
    enum { calls = 3 };
    const read_only_t *const job = context;
    const owned_t *const c = &job->now;
    float *recv[calls];
    qcclStream_t stream = NULL;
    qcclResult_t done = qcclSuccess;
    int i;
    for (i = 0; i < calls; i++) recv[i] = take_read_only(c, rank, job->size);
    if (job->way == on_stream) done = qcclStreamCreate(&stream);
    if (job->way == in_group) qcclGroupStart();
    for (i = 0; i < calls && done == qcclSuccess; i++) {
        const float *const send = recv[i] + start_of(c, rank);
        done = job->way == prepared ? make_prepared(job, comm, send, recv[i])
                                    : call(c, comm, job->size, job->exact, send, recv[i], stream);
    }
    if (job->way == in_group) done = qcclGroupEnd();
    if (stream && done == qcclSuccess) done = qcclStreamSynchronize(stream);
    qcclStreamDestroy(stream);
    for (i = 0; i < calls; i++) give_read_only(c, recv[i], job->size);
    return done;
}

static void own_values_are_not_written_in_place(void **state)
{
    static const size_t counts[] = {page_values, 40 * page_values};
    read_only_t job = {.size = 3};
    world_t world = make_world(job.size);
    size_t algorithm, i;
    (void)state;
    job.now.in_place = 1;
    assert_int_equal(qcclCodecCreate(&job.exact, "int8:min=0,owner=exact"), qcclSuccess);
    for (job.now.form = gathers; job.now.form < forms; job.now.form += broadcasts)
        for (algorithm = 0; algorithm < 8; algorithm++)
            for (i = 0; i < 2; i++)
                for (job.way = 0; job.way < ways; job.way++) {
                    outcome_t outcome;
                    job.now.algorithm = algorithms[job.now.form == broadcasts][algorithm];
                    job.now.count = counts[i];
                    outcome = on_every_rank(&world, call_on_read_only, &job);
                    assert_all_succeed(&outcome, job.size);
                }
    assert_int_equal(qcclCodecDestroy(job.exact), qcclSuccess);
    end_world(&world);
}
#endif

/* ---- Refusals */

static qcclResult_t with_other_owner(int rank, qcclComm_t comm, void *context)
{
    run_t *const run = context;
    float *memory, *recv;
    const qcclResult_t done =
        make(&run->now, rank, comm, 3, rank == 2 ? run->exact : run->decoded, &memory, &recv);
    give_memory(memory);
    return done != qcclSuccess ? done : qcclBarrier(comm, QCCL_STREAM_SYNC);
}

static void ranks_that_disagree_are_named(void **state)
{
    run_t run;
    (void)state;
    memset(&run, 0, sizeof run);
    run.now.count = 100;
    make_codecs(&run, "int8:min=0");
    for (run.now.form = gathers; run.now.form < forms; run.now.form += broadcasts) {
        world_t world = make_tested_world(3);
        const outcome_t outcome = on_every_rank(&world, with_other_owner, &run);
        assert_all_say(&outcome, 3, qcclMismatch, "codec int8:owner=exact");
        assert_says(outcome.sentence[0], "codec int8,");
        end_world(&world);
    }
    end_codecs(&run);
}

static void assert_refused(qcclComm_t comm, qcclResult_t result, const char *because)
{
    assert_int_equal(result, qcclInvalidArgument);
    assert_says(qcclGetLastError(comm), because);
}

/* The ranks have to meet before either finds what is wrong with its message. */
static qcclResult_t send_or_receive(int rank, qcclComm_t comm, void *context)
{
    float *const values = take_memory(rank, 4);
    qcclResult_t done;
    memset(values, 0, 4 * sizeof *values);
    done = rank == 0 ? qcclSendConfig(values, 4, qcclFloat32, 1, comm, QCCL_STREAM_SYNC, context)
                     : qcclRecvConfig(values, 4, qcclFloat32, 0, comm, QCCL_STREAM_SYNC, context);
    give_memory(values);
    return done;
}

static void calls_without_owners_refuse_the_key(void **state)
{
    world_t world = make_tested_world(2);
    const qcclComm_t comm = world.comms[0];
    float *const a = take_memory(0, 64), *const b = a + 32;
    const size_t fours[2] = {4, 4};
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    const qcclStream_t s = QCCL_STREAM_SYNC;
    outcome_t sent;
    (void)state;
    assert_int_equal(qcclCodecCreate(&config.codec, "int8:owner=exact"), qcclSuccess);
    assert_refused(comm, qcclAllReduceConfig(a, b, 4, qcclFloat32, qcclSum, comm, s, &config),
                   "in all_reduce it means nothing");
    assert_refused(comm, qcclReduceScatterConfig(a, b, 4, qcclFloat32, qcclSum, comm, s, &config),
                   "in reduce_scatter it means nothing");
    assert_refused(comm, qcclReduceConfig(a, b, 4, qcclFloat32, qcclSum, 0, comm, s, &config),
                   "in reduce it means nothing");
    assert_refused(comm, qcclGatherConfig(a, b, 4, qcclFloat32, 0, comm, s, &config),
                   "owner=exact is of all_gather and broadcast, where all ranks get the values "
                   "that one has; in gather it means nothing");
    assert_refused(comm, qcclScatterConfig(a, b, 4, qcclFloat32, 0, comm, s, &config),
                   "in scatter it means nothing");
    assert_refused(comm, qcclAllToAllConfig(a, b, 4, qcclFloat32, comm, s, &config),
                   "in all_to_all it means nothing");
    assert_refused(
        comm, qcclAllToAllVConfig(a, fours, NULL, b, fours, NULL, qcclFloat32, comm, s, &config),
        "in all_to_all it means nothing");
    assert_refused(comm, qcclScanConfig(a, b, 4, qcclFloat32, qcclSum, comm, s, &config),
                   "in scan it means nothing");
    sent = on_every_rank(&world, send_or_receive, &config);
    assert_all_say(&sent, 2, qcclInvalidArgument, "in send it means nothing");
    assert_int_equal(qcclCodecDestroy(config.codec), qcclSuccess);
    if (!on_gpus) assert_works(&world);
    give_memory(a);
    end_world(&world);
}

static void codecs_that_serve_reductions_refuse_the_key(void **state)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclUniqueId id;
    qcclComm_t comm = NULL;
    qcclCodec_t codec = NULL;
    size_t bytes;
    (void)state;
    config.codec = "int8:owner=exact";
    assert_int_equal(qcclGetUniqueId(&id), qcclSuccess);
    assert_int_equal(qcclCommInitRankConfig(&comm, 1, &id, 0, &config), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "config: codec int8:owner=exact: owner=exact is of "
                                        "all_gather and broadcast, and a codec that calls do not "
                                        "name themselves reaches reductions alone");
    setenv("QCCL_CODEC", "int8:owner=exact", 1);
    assert_int_equal(qcclCommInitRank(&comm, 1, &id, 0), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "QCCL_CODEC: codec int8:owner=exact: owner=exact is of "
                                        "all_gather and broadcast");
    unsetenv("QCCL_CODEC");
    assert_int_equal(qcclCodecCreate(&codec, "int8:owner=exact"), qcclSuccess);
    assert_int_equal(qcclCodecMaxEncodedBytes(codec, 10, qcclFloat32, &bytes), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "codec is int8:owner=exact, and owner is of collectives");
    assert_int_equal(qcclCodecDestroy(codec), qcclSuccess);
}

static void explanations_know_the_key(void **state)
{
    world_t world = make_tested_world(2);
    char text[4096];
    size_t bytes = sizeof text;
    (void)state;
    assert_int_equal(qcclExplain(world.comms[0],
                                 "all_gather bytes=64K type=float codec=int8:owner=exact", text,
                                 &bytes),
                     qcclSuccess);
    assert_says(text, "int8:owner=exact");
    bytes = sizeof text;
    assert_refused(
        world.comms[0],
        qcclExplain(world.comms[0], "all_to_all bytes=64K codec=int8:owner=exact", text, &bytes),
        "in all_to_all it means nothing");
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_keep_their_values),
        cmocka_unit_test(guards_watch_such_calls_too),
#ifndef ON_GPUS
        cmocka_unit_test(own_values_are_not_written_in_place),
#endif
        cmocka_unit_test(ranks_that_disagree_are_named),
        cmocka_unit_test(calls_without_owners_refuse_the_key),
        cmocka_unit_test(codecs_that_serve_reductions_refuse_the_key),
        cmocka_unit_test(explanations_know_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
