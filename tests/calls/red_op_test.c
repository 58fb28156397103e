/* Tests operations that a program makes of its own functions: results against a fold in rank order,
 * every size of type, functions that fail, throw or call the communicator, and what is refused. */
#include "tests/api/api_kit.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { size = 4, root = 2, few = 5, many = 30001 };

SHARED_WORLD(size)

/* ---- Operations */

/* A map x -> a * x + b of 32-bit numbers: a is the lower half. */
static uint64_t map_of(int rank, size_t i)
{
    const uint32_t a = 2 * (uint32_t)i + 4 * (uint32_t)rank + 3, b = (uint32_t)(i * 7 + 13) << rank;
    return a | (uint64_t)b << 32;
}

/* The map that applies `first`, then `then`. The order matters. */
static uint64_t composed(uint64_t first, uint64_t then)
{
    const uint32_t a = (uint32_t)first, b = (uint32_t)(first >> 32);
    const uint32_t c = (uint32_t)then, d = (uint32_t)(then >> 32);
    return (uint32_t)(a * c) | (uint64_t)(uint32_t)(c * b + d) << 32;
}

static int compose(void *accumulator, const void *values, size_t count, qcclDataType_t type,
                   void *context)
{
    uint64_t *sums = accumulator;
    const uint64_t *maps = values;
    size_t i;
    (void)context;
    if (type != qcclUint64 || count == 0) return 1;
    for (i = 0; i < count; i++) sums[i] = composed(sums[i], maps[i]);
    return 0;
}

/* Returns the composition of the maps of ranks 0 to last. */
static uint64_t composed_up_to(int last, size_t i)
{
    uint64_t map = map_of(0, i);
    int rank;
    for (rank = 1; rank <= last; rank++) map = composed(map, map_of(rank, i));
    return map;
}

/* Context: the size of an element and the type that the function expects. */
typedef struct {
    size_t bytes;
    qcclDataType_t type;
} expected_t;

static int mix(void *accumulator, const void *values, size_t count, qcclDataType_t type,
               void *context)
{
    const expected_t *expected = context;
    unsigned char *sums = accumulator;
    const unsigned char *bytes = values;
    size_t i;
    if (type != expected->type) return 1;
    for (i = 0; i < count * expected->bytes; i++) sums[i] ^= bytes[i];
    return 0;
}

static qcclRedOp_t op_of(qcclRedOpFunction_t function, int commutes, void *context)
{
    qcclRedOp_t op = -1;
    assert_int_equal(qcclRedOpCreate(&op, function, commutes, context), qcclSuccess);
    assert_true(op >= 1024);
    return op;
}

/* ---- Results */

typedef struct {
    qcclRedOp_t op;
    size_t count;
    const char *algorithm;
    int is_streamed;
} job_t;

static int has(const uint64_t *values, size_t count, int last, size_t first)
{
    size_t i;
    for (i = 0; i < count; i++)
        if (values[i] != composed_up_to(last, first + i)) return 0;
    return 1;
}

/* Makes every collective that reduces, in place where `recv` begins with the rank's own values. */
static qcclResult_t make_all(int rank, qcclComm_t comm, const job_t *job, uint64_t *send,
                             uint64_t *recv, qcclStream_t stream)
{
    const size_t count = job->count;
    const size_t counts[size] = {count, 0, 2 * count, count};
    const size_t starts[size] = {0, count, count, 3 * count}, part = counts[rank];
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.algorithm = job->algorithm;
#define MAKE(CALL, IS_RIGHT)                                                                       \
    do {                                                                                           \
        qcclResult_t result = (CALL);                                                              \
        if (result == qcclSuccess && stream) result = qcclStreamSynchronize(stream);               \
        if (result != qcclSuccess) return result;                                                  \
        if (!(IS_RIGHT)) return qcclInternalError;                                                 \
    } while (0)
    MAKE(qcclAllReduceConfig(send, recv, count, qcclUint64, job->op, comm, stream, &config),
         has(recv, count, size - 1, 0));
    memcpy(recv, send, count * sizeof *recv);
    MAKE(qcclAllReduceConfig(recv, recv, count, qcclUint64, job->op, comm, stream, &config),
         has(recv, count, size - 1, 0));
    MAKE(qcclReduceConfig(send, recv, count, qcclUint64, job->op, root, comm, stream, &config),
         rank != root || has(recv, count, size - 1, 0));
    MAKE(qcclReduceScatterConfig(send, recv, count, qcclUint64, job->op, comm, stream, &config),
         has(recv, count, size - 1, (size_t)rank * count));
    MAKE(qcclReduceScatterV(send, recv, counts, NULL, qcclUint64, job->op, comm, stream),
         has(recv, part, size - 1, starts[rank]));
    MAKE(qcclScan(send, recv, count, qcclUint64, job->op, comm, stream), has(recv, count, rank, 0));
    MAKE(qcclExscan(send, recv, count, qcclUint64, job->op, comm, stream),
         rank == 0 || has(recv, count, rank - 1, 0));
#undef MAKE
    return qcclSuccess;
}

static qcclResult_t fold_in_order(int rank, qcclComm_t comm, void *context)
{
    const job_t *job = context;
    uint64_t *const send = malloc(size * job->count * sizeof *send);
    uint64_t *const recv = malloc(size * job->count * sizeof *recv);
    qcclStream_t stream = NULL;
    qcclResult_t result = qcclSuccess;
    int round;
    size_t i;
    for (i = 0; i < size * job->count; i++) send[i] = map_of(rank, i);
    if (job->is_streamed) result = qcclStreamCreate(&stream);
    /* Twice, because a call that repeats another skips the checks of arguments. */
    for (round = 0; round < 2 && result == qcclSuccess; round++)
        result = make_all(rank, comm, job, send, recv, stream);
    qcclStreamDestroy(stream);
    free(send);
    free(recv);
    return result;
}

static void operands_stand_in_the_order_of_ranks(void **state)
{
    static const char *const algorithms[] = {NULL, "direct", "oneshot"};
    static const size_t counts[] = {1, few, many};
    const qcclRedOp_t op = op_of(compose, 0, NULL);
    size_t i, k;
    (void)state;
    for (i = 0; i < 3; i++)
        for (k = 0; k < 3; k++) {
            job_t job = {.op = op, .count = counts[k], .algorithm = algorithms[i]};
            outcome_t outcome = on_every_rank(&world, fold_in_order, &job);
            assert_all_succeed(&outcome, size);
            job.is_streamed = 1;
            outcome = on_every_rank(&world, fold_in_order, &job);
            assert_all_succeed(&outcome, size);
        }
    assert_int_equal(qcclRedOpDestroy(op), qcclSuccess);
}

/* Every algorithm either keeps the order or refuses by name. */
static qcclResult_t try_each_algorithm(int rank, qcclComm_t comm, void *context)
{
    static const char *const names[] = {
        "direct", "ring", "halving", "tree", "tree:shape=double", "oneshot", "doubling"};
    uint64_t send[few], recv[few];
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    int *refused = context;
    size_t i;
    for (i = 0; i < few; i++) send[i] = map_of(rank, i);
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        qcclResult_t result;
        config.algorithm = names[i];
        result = qcclAllReduceConfig(send, recv, few, qcclUint64, refused[0], comm, NULL, &config);
        if (result == qcclInvalidArgument) {
            if (!strstr(qcclGetLastError(comm), "order of the ranks")) return result;
            if (rank == 0) refused[1]++;
            continue;
        }
        if (result != qcclSuccess) return result;
        if (!has(recv, few, size - 1, 0)) return qcclInternalError;
    }
    return qcclSuccess;
}

static void algorithms_keep_the_order_or_refuse(void **state)
{
    int op_and_refused[2] = {op_of(compose, 0, NULL), 0};
    const outcome_t outcome = on_every_rank(&world, try_each_algorithm, op_and_refused);
    (void)state;
    assert_all_succeed(&outcome, size);
    assert_true(op_and_refused[1] >= 1); /* the ring */
    assert_int_equal(qcclRedOpDestroy(op_and_refused[0]), qcclSuccess);
}

typedef struct {
    qcclRedOp_t op;
    qcclDataType_t type;
    size_t bytes;
} typed_job_t;

static qcclResult_t mix_type(int rank, qcclComm_t comm, void *context)
{
    const typed_job_t *job = context;
    const size_t counts[] = {3, 9001};
    unsigned char *const send = malloc(9001 * 16), *const recv = malloc(9001 * 16);
    qcclResult_t result = qcclSuccess;
    size_t i, k;
    for (k = 0; k < 2 && result == qcclSuccess; k++) {
        const size_t bytes = counts[k] * job->bytes;
        for (i = 0; i < bytes; i++) send[i] = (unsigned char)(i * 31 + (size_t)rank * 77);
        result = qcclAllReduce(send, recv, counts[k], job->type, job->op, comm, NULL);
        for (i = 0; i < bytes && result == qcclSuccess; i++) {
            unsigned char expected = 0;
            int r;
            for (r = 0; r < size; r++) expected ^= (unsigned char)(i * 31 + (size_t)r * 77);
            if (recv[i] != expected) result = qcclInternalError;
        }
    }
    free(send);
    free(recv);
    return result;
}

static void functions_get_every_type(void **state)
{
    static const typed_job_t jobs[] = {
        {0, qcclInt8, 1},    {0, qcclUint8, 1},    {0, qcclInt32, 4},      {0, qcclUint32, 4},
        {0, qcclInt64, 8},   {0, qcclUint64, 8},   {0, qcclFloat16, 2},    {0, qcclFloat32, 4},
        {0, qcclFloat64, 8}, {0, qcclBfloat16, 2}, {0, qcclFloat8e4m3, 1}, {0, qcclFloat8e5m2, 1},
        {0, qcclInt16, 2},   {0, qcclUint16, 2},   {0, qcclComplex64, 8},  {0, qcclComplex128, 16},
        {0, qcclBool, 1},    {0, qcclFloatInt, 8}, {0, qcclDoubleInt, 16}, {0, qcclLongInt, 16},
        {0, qcclIntInt, 8},  {0, qcclShortInt, 8}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        typed_job_t job = jobs[i];
        expected_t expected = {job.bytes, job.type};
        outcome_t outcome;
        job.op = op_of(mix, 1, &expected);
        outcome = on_every_rank(&world, mix_type, &job);
        assert_all_succeed(&outcome, size);
        assert_int_equal(qcclRedOpDestroy(job.op), qcclSuccess);
    }
}

/* Two operations in one group: small calls are not fused into one. */
static qcclResult_t grouped(int rank, qcclComm_t comm, void *context)
{
    const qcclRedOp_t *ops = context;
    uint64_t maps[2][few], composed_maps[few], mixed[few], expected[few] = {0};
    qcclResult_t result;
    size_t i;
    int r;
    for (i = 0; i < few; i++) maps[0][i] = maps[1][i] = map_of(rank, i);
    for (i = 0; i < few; i++)
        for (r = 0; r < size; r++) expected[i] ^= map_of(r, i);
    qcclGroupStart();
    qcclAllReduce(maps[0], composed_maps, few, qcclUint64, ops[0], comm, NULL);
    qcclAllReduce(maps[1], mixed, few, qcclUint64, ops[1], comm, NULL);
    result = qcclGroupEnd();
    if (result != qcclSuccess) return result;
    return has(composed_maps, few, size - 1, 0) && memcmp(mixed, expected, sizeof mixed) == 0
               ? qcclSuccess
               : qcclInternalError;
}

/* The operation ends before the calls that have been given to a stream, and before prepared
 * calls. */
static qcclResult_t end_early(int rank, qcclComm_t comm, void *context)
{
    uint64_t send[few], recv[few];
    qcclStream_t stream = NULL;
    qcclColl_t coll = NULL;
    qcclRedOp_t op = 0;
    qcclResult_t result;
    size_t i;
    (void)context;
    for (i = 0; i < few; i++) send[i] = map_of(rank, i);
    result = qcclStreamCreate(&stream);
    if (result == qcclSuccess) result = qcclRedOpCreate(&op, compose, 0, NULL);
    if (result == qcclSuccess)
        result = qcclCollCreate(&coll, qcclCollAllReduce, send, recv, few, qcclUint64, op, 0, comm,
                                NULL, NULL);
    if (result == qcclSuccess)
        result = qcclAllReduce(send, recv, few, qcclUint64, op, comm, stream);
    if (result == qcclSuccess) result = qcclRedOpDestroy(op);
    if (result == qcclSuccess) result = qcclStreamSynchronize(stream);
    if (result == qcclSuccess && !has(recv, few, size - 1, 0)) result = qcclInternalError;
    memset(recv, 0, sizeof recv);
    if (result == qcclSuccess) result = qcclCollStart(coll);
    if (result == qcclSuccess && !has(recv, few, size - 1, 0)) result = qcclInternalError;
    if (coll && qcclCollFree(coll) != qcclSuccess) result = qcclInternalError;
    qcclStreamDestroy(stream);
    return result;
}

static void groups_streams_and_prepared_calls(void **state)
{
    expected_t expected = {8, qcclUint64};
    qcclRedOp_t ops[] = {op_of(compose, 0, NULL), op_of(mix, 1, &expected)};
    outcome_t outcome = on_every_rank(&world, grouped, ops);
    (void)state;
    assert_all_succeed(&outcome, size);
    outcome = on_every_rank(&world, end_early, NULL);
    assert_all_succeed(&outcome, size);
    assert_int_equal(qcclRedOpDestroy(ops[0]), qcclSuccess);
    assert_int_equal(qcclRedOpDestroy(ops[1]), qcclSuccess);
}

/* ---- Functions that misbehave */

/* Context: the rank's communicator, and what a call with it returned. */
typedef struct {
    qcclComm_t comm;
    qcclResult_t result;
    int is_called;
} inner_t;

static int call_inside(void *accumulator, const void *values, size_t count, qcclDataType_t type,
                       void *context)
{
    inner_t *inner = context;
    inner->is_called = 1;
    inner->result = qcclBarrier(inner->comm, NULL);
    return compose(accumulator, values, count, type, NULL);
}

static qcclResult_t call_with_caller(int rank, qcclComm_t comm, void *context)
{
    const int is_streamed = *(int *)context;
    inner_t inner = {comm, qcclSuccess, 0};
    uint64_t send[few], recv[few];
    qcclStream_t stream = NULL;
    qcclRedOp_t op = 0;
    qcclResult_t result;
    size_t i;
    for (i = 0; i < few; i++) send[i] = map_of(rank, i);
    result = qcclRedOpCreate(&op, call_inside, 0, &inner);
    if (result == qcclSuccess && is_streamed) result = qcclStreamCreate(&stream);
    if (result == qcclSuccess)
        result = qcclAllReduce(send, recv, few, qcclUint64, op, comm, stream);
    if (result == qcclSuccess && stream) result = qcclStreamSynchronize(stream);
    if (result == qcclSuccess && !has(recv, few, size - 1, 0)) result = qcclInternalError;
    if (result == qcclSuccess && inner.is_called && inner.result != qcclInvalidUsage)
        result = qcclInternalError;
    if (result == qcclSuccess && rank == 0 && !inner.is_called) result = qcclInternalError;
    qcclStreamDestroy(stream);
    qcclRedOpDestroy(op);
    return result;
}

static void calls_from_inside_are_refused(void **state)
{
    int is_streamed;
    (void)state;
    for (is_streamed = 0; is_streamed < 2; is_streamed++) {
        const outcome_t outcome = on_every_rank(&world, call_with_caller, &is_streamed);
        assert_all_succeed(&outcome, size);
    }
    assert_works(&world);
}

static int return_7(void *accumulator, const void *values, size_t count, qcclDataType_t type,
                    void *context)
{
    (void)accumulator, (void)values, (void)count, (void)type, (void)context;
    return 7;
}

int throw_it(void *accumulator, const void *values, size_t count, qcclDataType_t type,
             void *context);

/* Rank 1's function fails. */
typedef struct {
    qcclRedOpFunction_t function;
    size_t count;
    char sentence[sentence_bytes]; /* that rank 1 expects, but for the number */
} failing_t;

static qcclResult_t combine_with_failing(int rank, qcclComm_t comm, void *context)
{
    const failing_t *failing = context;
    uint64_t *const send = calloc(failing->count, sizeof *send);
    uint64_t *const recv = calloc(failing->count, sizeof *recv);
    qcclRedOp_t op = 0;
    qcclResult_t result = qcclRedOpCreate(&op, rank == 1 ? failing->function : compose, 0, NULL);
    if (result == qcclSuccess)
        result = qcclAllReduce(send, recv, failing->count, qcclUint64, op, comm, NULL);
    /* A rank that was done before the function failed hears of it in its next call. */
    if (result == qcclSuccess) result = qcclBarrier(comm, NULL);
    qcclRedOpDestroy(op);
    free(send);
    free(recv);
    return result;
}

static void failing_functions_fail_the_communicator(void **state)
{
    static const failing_t cases[] = {{return_7, few, "returned 7"},
                                      {return_7, many, "returned 7"},
                                      {throw_it, few, "threw: no such value"},
                                      {throw_it, many, "threw: no such value"}};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        world_t own = make_world(size);
        failing_t failing = cases[i];
        const outcome_t outcome = on_every_rank(&own, combine_with_failing, &failing);
        assert_all_say(&outcome, size, qcclSystemError, failing.sentence);
        assert_says(outcome.sentence[0], "rank 1");
        end_world(&own);
    }
}

/* ---- Refusals */

static void misuse_is_refused(void **state)
{
    qcclComm_t comm = world.comms[0];
    qcclRedOp_t op = 0, other = 0;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    uint64_t maps[few] = {0};
    float values[few] = {0};
    (void)state;
    assert_int_equal(qcclRedOpCreate(NULL, compose, 0, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "op_out is NULL");
    assert_int_equal(qcclRedOpCreate(&op, NULL, 0, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "function is NULL");
    assert_int_equal(qcclRedOpCreate(&op, compose, 2, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "commutes is 2");
    assert_int_equal(qcclRedOpDestroy(qcclSum), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "every program has");
    assert_int_equal(qcclRedOpDestroy(63), qcclInvalidArgument);
    assert_int_equal(qcclRedOpDestroy(INT32_MAX), qcclInvalidArgument);

    op = op_of(compose, 0, NULL);
    assert_int_equal(qcclCodecCreate(&config.codec, "fp16"), qcclSuccess);
    assert_int_equal(qcclAllReduceConfig(values, values, few, qcclFloat32, op, comm, NULL, &config),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(comm), "codec fp16");
    assert_int_equal(qcclCodecDestroy(config.codec), qcclSuccess);
    assert_int_equal(qcclRedOpDestroy(op), qcclSuccess);
    assert_int_equal(qcclRedOpDestroy(op), qcclInvalidUsage);
    assert_int_equal(qcclAllReduce(maps, maps, few, qcclUint64, op, comm, NULL), qcclInvalidUsage);
    assert_says(qcclGetLastError(comm), "has been destroyed");
    assert_int_equal(qcclAllReduce(maps, maps, few, qcclUint64, INT32_MAX, comm, NULL),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(comm), "op is 2147483647");
    /* Numbers are not given again. */
    other = op_of(compose, 0, NULL);
    assert_int_not_equal(other, op);
    assert_int_equal(qcclRedOpDestroy(other), qcclSuccess);
    assert_works(&world);
}

/* Calls that repeat another one find its program again, but not an operation that has ended. */
static qcclResult_t repeat_after_end(int rank, qcclComm_t comm, void *context)
{
    uint64_t send[few], recv[few];
    qcclRedOp_t op = 0;
    qcclResult_t result = qcclRedOpCreate(&op, compose, 0, NULL);
    size_t i;
    (void)context;
    for (i = 0; i < few; i++) send[i] = map_of(rank, i);
    for (i = 0; i < 3 && result == qcclSuccess; i++)
        result = qcclAllReduce(send, recv, few, qcclUint64, op, comm, NULL);
    if (result == qcclSuccess) result = qcclRedOpDestroy(op);
    if (result != qcclSuccess) return result;
    result = qcclAllReduce(send, recv, few, qcclUint64, op, comm, NULL);
    return result == qcclInvalidUsage ? qcclSuccess : qcclInternalError;
}

static void a_repeated_call_looks_the_operation_up(void **state)
{
    const outcome_t outcome = on_every_rank(&world, repeat_after_end, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
    assert_works(&world);
}

static void many_operations_may_exist(void **state)
{
    enum { most = 4096 };
    static qcclRedOp_t ops[most];
    qcclRedOp_t more = 0;
    int i;
    (void)state;
    for (i = 0; i < most; i++) ops[i] = op_of(compose, 0, NULL);
    assert_int_equal(qcclRedOpCreate(&more, compose, 0, NULL), qcclSystemError);
    assert_says(qcclGetLastError(NULL), "4096");
    for (i = 0; i < most; i++) assert_int_equal(qcclRedOpDestroy(ops[i]), qcclSuccess);
    /* Longer than one place of the table has numbers for. */
    for (i = 0; i < 600000; i++) {
        qcclRedOp_t next = 0;
        if (qcclRedOpCreate(&next, compose, 0, NULL) != qcclSuccess || next < 1024 ||
            next == more || qcclRedOpDestroy(next) != qcclSuccess)
            fail_msg("operation %d has the number %d after %d", i, next, more);
        more = next;
    }
}

static qcclResult_t disagree(int rank, qcclComm_t comm, void *context)
{
    qcclRedOp_t op = qcclSum;
    uint64_t maps[few] = {0};
    qcclResult_t result;
    (void)context;
    if (rank != 1) qcclRedOpCreate(&op, compose, rank != 2, NULL);
    result = qcclAllReduce(maps, maps, few, qcclUint64, op, comm, NULL);
    if (op != qcclSum) qcclRedOpDestroy(op);
    return result;
}

static void ranks_must_agree_whether_operands_may_be_swapped(void **state)
{
    world_t own = make_world(size);
    const outcome_t outcome = on_every_rank(&own, disagree, NULL);
    (void)state;
    assert_all_say(&outcome, size, qcclMismatch, "custom");
    end_world(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_stand_in_the_order_of_ranks),
        cmocka_unit_test(algorithms_keep_the_order_or_refuse),
        cmocka_unit_test(functions_get_every_type),
        cmocka_unit_test(groups_streams_and_prepared_calls),
        cmocka_unit_test(calls_from_inside_are_refused),
        cmocka_unit_test(failing_functions_fail_the_communicator),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(a_repeated_call_looks_the_operation_up),
        cmocka_unit_test(many_operations_may_exist),
        cmocka_unit_test(ranks_must_agree_whether_operands_may_be_swapped),
    };
    return cmocka_run_group_tests(tests, make, end);
}
