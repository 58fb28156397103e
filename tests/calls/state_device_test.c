/* Tests states on emulated GPUs. Their slow twin is the host: the same calls on communicators of
 * the host give the same results and leave the same states, byte for byte. */
#include "tested_world.h"

#include <stdio.h>
#include <string.h>

enum { size = 3, most = 70001, calls = 3, wide = 8 };

typedef struct {
    const char *codec, *algorithm;
    qcclDataType_t type;
    qcclRedOp_t op;
    int scatters;
    size_t count;
} tested_t;

/* What one world of ranks leaves behind. */
typedef struct {
    tested_t now;
    qcclCodec_t codec;
    int is_on_gpus;
    unsigned char *results[size], *states[size];
    size_t result_bytes, state_bytes;
    char what[size][sentence_bytes];
} run_t;

static size_t bytes_of(qcclDataType_t type)
{
    return type == qcclFloat64 ? 8 : type == qcclBfloat16 ? 2 : 4;
}
/* Of an element of a residual. */
static size_t wide_bytes(qcclDataType_t type) { return type == qcclFloat64 ? 8 : 4; }

static void *take(const run_t *run, int rank, size_t bytes)
{
    return run->is_on_gpus ? take_bytes(rank, bytes) : malloc(bytes);
}
static void give(const run_t *run, void *memory)
{
    if (run->is_on_gpus)
        give_memory(memory);
    else
        free(memory);
}

static void fill(const run_t *run, int rank, int call, void *send, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const float value =
            drawn_value((uint32_t)(rank * 7919 + call * 131) + (uint32_t)i * 2654435761u);
        if (run->now.type == qcclFloat64)
            ((double *)send)[i] = (double)value;
        else if (run->now.type == qcclBfloat16)
            memcpy((uint16_t *)send + i, (const char *)&value + 2, 2);
        else
            ((float *)send)[i] = value;
    }
}

static qcclResult_t sum(const run_t *run, const void *send, void *recv, qcclComm_t comm,
                        qcclState_t state)
{
    const tested_t *const c = &run->now;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.codec = run->codec;
    config.algorithm = c->algorithm;
    config.state = state;
    if (c->scatters)
        return qcclReduceScatterConfig(send, recv, c->count, c->type, c->op, comm, QCCL_STREAM_SYNC,
                                       &config);
    return qcclAllReduceConfig(send, recv, c->count, c->type, c->op, comm, QCCL_STREAM_SYNC,
                               &config);
}

/* The codec dgc has a momentum, and its state a velocity. */
static float momentum_of(const tested_t *c)
{
    return c->codec && strncmp(c->codec, "dgc", 3) == 0 ? 0.9f : 0;
}

static qcclResult_t run_calls(int rank, qcclComm_t comm, void *context)
{
    run_t *const run = context;
    const tested_t *const c = &run->now;
    const size_t n = c->scatters ? size * c->count : c->count;
    qcclStateConfig_t config = QCCL_STATE_CONFIG_INIT;
    qcclState_t state = NULL;
    void *const send = take(run, rank, n * bytes_of(c->type) + wide);
    void *const recv = take(run, rank, n * bytes_of(c->type) + wide);
    qcclResult_t done;
    int call;
    config.seed = 7;
    config.momentum = momentum_of(c);
    done = qcclStateCreate(&state, comm, n, c->type, &config);
    for (call = 0; call < calls && done == qcclSuccess; call++) {
        fill(run, rank, call, send, n);
        done = sum(run, send, recv, comm, state);
        memcpy(run->results[rank] + (size_t)call * run->result_bytes, recv, run->result_bytes);
    }
    if (done == qcclSuccess) done = qcclStateSave(state, run->states[rank], run->state_bytes);
    /* Through zero and back. */
    if (done == qcclSuccess) done = qcclStateReset(state);
    if (done == qcclSuccess) done = qcclStateLoad(state, run->states[rank], run->state_bytes);
    if (done == qcclSuccess) {
        memset(run->states[rank], 0, run->state_bytes);
        done = qcclStateSave(state, run->states[rank], run->state_bytes);
    }
    (void)qcclStateDestroy(state);
    give(run, send);
    give(run, recv);
    return done;
}

static run_t prepare(const tested_t *tested, int is_on_gpus)
{
    run_t run = {.now = *tested, .is_on_gpus = is_on_gpus};
    const size_t n = tested->scatters ? size * tested->count : tested->count;
    int rank;
    run.result_bytes = tested->count * bytes_of(tested->type);
    run.state_bytes = 64 + n * wide_bytes(tested->type) * (momentum_of(tested) != 0 ? 2 : 1);
    for (rank = 0; rank < size; rank++) {
        run.results[rank] = calloc(1, calls * run.result_bytes + 1);
        run.states[rank] = calloc(1, run.state_bytes);
    }
    if (tested->codec && qcclCodecCreate(&run.codec, tested->codec) != qcclSuccess)
        fail_msg("%s", qcclGetLastError(NULL));
    return run;
}

static void drop(run_t *run)
{
    int rank;
    for (rank = 0; rank < size; rank++) {
        free(run->results[rank]);
        free(run->states[rank]);
    }
    assert_int_equal(qcclCodecDestroy(run->codec), qcclSuccess);
}

static void compare(const world_t *host, const world_t *gpus, const tested_t *tested)
{
    run_t wanted = prepare(tested, 0), got = prepare(tested, 1);
    outcome_t outcome = on_every_rank(host, run_calls, &wanted);
    int rank;
    assert_all_succeed(&outcome, size);
    outcome = on_every_rank(gpus, run_calls, &got);
    assert_all_succeed(&outcome, size);
    for (rank = 0; rank < size; rank++) {
        if (memcmp(got.results[rank], wanted.results[rank], calls * wanted.result_bytes) != 0)
            fail_msg("%s, %s, type %d, op %d, scatters %d, count %zu: other results", tested->codec,
                     tested->algorithm, (int)tested->type, (int)tested->op, tested->scatters,
                     tested->count);
        if (memcmp(got.states[rank], wanted.states[rank], wanted.state_bytes) != 0)
            fail_msg("%s, %s, type %d, op %d, scatters %d, count %zu: other states", tested->codec,
                     tested->algorithm, (int)tested->type, (int)tested->op, tested->scatters,
                     tested->count);
    }
    drop(&wanted);
    drop(&got);
}

/* Small calls go over eager slots, and long ones through lanes. */
static void gpus_leave_the_states_of_the_host(void **state)
{
    static const char *const codecs[] = {NULL,       "fp8e4m3",         "int4:min=0",
                                         "onebit",   "topk:ratio=0.01", "int2:round=stochastic",
                                         "terngrad", "minmax:bits=3",   "dgc:ratio=0.01,warmup=2"};
    static const char *const algorithms[] = {"direct", "ring", "oneshot", "halving"};
    static const size_t counts[] = {1, 1000, 4097, most};
    static const qcclDataType_t types[] = {qcclFloat32, qcclBfloat16, qcclFloat64};
    world_t host = make_world(size), gpus = make_tested_world(size);
    size_t c, n, number = 0;
    (void)state;
    for (c = 0; c < sizeof codecs / sizeof *codecs; c++)
        for (n = 0; n < sizeof counts / sizeof *counts; n++, number++) {
            const tested_t tested = {.codec = codecs[c],
                                     .algorithm = algorithms[(number + number / 4) % 4],
                                     .type = types[number % 5 % 3],
                                     .op = number % 2 == 0 ? qcclAvg : qcclSum,
                                     .scatters = number % 3 == 2,
                                     .count = counts[n]};
            compare(&host, &gpus, &tested);
        }
    end_world(&gpus);
    end_world(&host);
}

static void a_state_stays_on_its_device(void **unused)
{
    world_t host = make_world(1), gpus = make_tested_world(1);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    float values[4] = {0};
    float *const there = take_memory(0, 4);
    (void)unused;
    assert_int_equal(qcclStateCreate(&config.state, gpus.comms[0], 4, qcclFloat32, NULL),
                     qcclSuccess);
    assert_int_equal(qcclAllReduceConfig(values, values, 4, qcclFloat32, qcclSum, host.comms[0],
                                         QCCL_STREAM_SYNC, &config),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "state lies on emulated:0");
    assert_int_equal(qcclAllReduceConfig(there, there, 4, qcclFloat32, qcclSum, gpus.comms[0],
                                         QCCL_STREAM_SYNC, &config),
                     qcclSuccess);
    assert_int_equal(qcclStateDestroy(config.state), qcclSuccess);
    give_memory(there);
    end_world(&gpus);
    end_world(&host);
}

typedef struct {
    float *memory; /* of the host */
} enqueued_t;

/* Each call adds what the one before owes, and none waits on the host for another. */
static qcclResult_t enqueue_calls(int rank, qcclComm_t comm, void *context)
{
    enqueued_t *const mine = (enqueued_t *)context + rank;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclEmulatedStream_t stream = NULL;
    float *const send = take_memory(rank, most), *const recv = take_memory(rank, calls * most);
    qcclResult_t done = qcclStateCreate(&config.state, comm, most, qcclFloat32, NULL);
    size_t i;
    int call;
    if (done == qcclSuccess) done = qcclCodecCreate(&config.codec, "topk:ratio=0.2");
    for (i = 0; i < most; i++) send[i] = drawn_value((uint32_t)i * 2654435761u);
    if (qcclEmulatedStreamCreate(&stream) != qcclEmulatedSuccess) done = qcclSystemError;
    for (call = 0; call < calls && done == qcclSuccess; call++)
        done = qcclAllReduceConfig(send, recv + (size_t)call * most, most, qcclFloat32, qcclSum,
                                   comm, stream, &config);
    if (qcclEmulatedStreamSynchronize(stream) != qcclEmulatedSuccess) done = qcclSystemError;
    memcpy(mine->memory, recv, calls * most * sizeof *recv);
    if (done == qcclSuccess) (void)qcclCommGetAsyncError(comm, &done);
    (void)qcclEmulatedStreamDestroy(stream);
    (void)qcclStateDestroy(config.state);
    (void)qcclCodecDestroy(config.codec);
    give_memory(send);
    give_memory(recv);
    return done;
}

static void calls_in_a_stream_owe_to_each_other(void **state)
{
    world_t gpus = make_tested_world(size);
    enqueued_t found[size];
    outcome_t outcome;
    size_t i, differ = 0;
    int rank;
    (void)state;
    for (rank = 0; rank < size; rank++) found[rank].memory = calloc(calls * most, sizeof(float));
    outcome = on_every_rank(&gpus, enqueue_calls, found);
    assert_all_succeed(&outcome, size);
    for (rank = 1; rank < size; rank++)
        assert_memory_equal(found[rank].memory, found[0].memory, calls * most * sizeof(float));
    for (i = 0; i < most; i++) differ += found[0].memory[i] != found[0].memory[most + i];
    assert_true(differ > most / 10);
    for (rank = 0; rank < size; rank++) free(found[rank].memory);
    end_world(&gpus);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpus_leave_the_states_of_the_host),
        cmocka_unit_test(calls_in_a_stream_owe_to_each_other),
        cmocka_unit_test(a_state_stays_on_its_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
