/* Tests sums of products with a scalar of each rank. Their slow twin is a sum of values that were
 * multiplied before, as a product of two ranks: the bytes are the same. With ON_GPUS the ranks have
 * emulated GPUs, whose memory the host can read and write, and fewer cases run. */
#include "tested_world.h"

#include <string.h>

#ifdef ON_GPUS
enum { size = 2, many = 3001 };
#else
enum { size = 4, many = 50021 };
#endif

enum { most_value_bytes = 16, root = 1, kinds = 7 };

static world_t world, pair;

static int make(void **state)
{
    (void)state;
    world = make_tested_world(size);
    pair = make_world(2);
    return 0;
}

static int end(void **state)
{
    (void)state;
    end_world(&world);
    end_world(&pair);
    return 0;
}

/* ---- Against values multiplied before */

typedef struct {
    qcclDataType_t type;
    size_t value_bytes, count;
    const char *codec;
    int is_read_late; /* the scalar is read when the call runs */
    unsigned char factors[size][most_value_bytes];
    unsigned char *inputs[size], *products[size]; /* in memory of the host */
} job_t;

static unsigned random_byte(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 24;
}

/* Any bytes are values: NaN, infinities and numbers of every size. */
static void fill(unsigned char *to, size_t bytes, unsigned seed)
{
    size_t i;
    for (i = 0; i < bytes; i++) to[i] = (unsigned char)random_byte(&seed);
}

/* Rank 0 gives the inputs, rank 1 as many factors. */
typedef struct {
    const job_t *job;
    int rank;
    size_t count;
} multiplied_t;

static qcclResult_t multiply(int rank, qcclComm_t comm, void *context)
{
    const multiplied_t *multiplied = context;
    const job_t *job = multiplied->job;
    const size_t bytes = multiplied->count * job->value_bytes;
    unsigned char *const send = malloc(bytes), *const recv = malloc(bytes);
    qcclResult_t result;
    size_t i;
    memcpy(send, job->inputs[multiplied->rank], bytes);
    if (rank == 1)
        for (i = 0; i < multiplied->count; i++)
            memcpy(send + i * job->value_bytes, job->factors[multiplied->rank], job->value_bytes);
    result = qcclAllReduce(send, recv, multiplied->count, job->type, qcclProd, comm, NULL);
    if (rank == 0) memcpy(job->products[multiplied->rank], recv, bytes);
    free(send);
    free(recv);
    return result;
}

/* The kinds are the collectives that reduce; an all-reduce also in place. */
static qcclResult_t reduce(int kind, const void *send, void *recv, const job_t *job, qcclRedOp_t op,
                           qcclComm_t comm, const qcclCollConfig_t *config)
{
    const size_t count = job->count;
    switch (kind) {
    case 0:
        return qcclAllReduceConfig(send, recv, count, job->type, op, comm, QCCL_STREAM_SYNC,
                                   config);
    case 1:
        return qcclAllReduceConfig(send, (void *)send, count, job->type, op, comm, QCCL_STREAM_SYNC,
                                   config);
    case 2:
        return qcclReduceConfig(send, recv, count, job->type, op, root, comm, QCCL_STREAM_SYNC,
                                config);
    case 3:
        return qcclReduceScatterConfig(send, recv, count / size, job->type, op, comm,
                                       QCCL_STREAM_SYNC, config);
    case 4: return qcclScanConfig(send, recv, count, job->type, op, comm, QCCL_STREAM_SYNC, config);
    case 5:
        return qcclExscanConfig(send, recv, count, job->type, op, comm, QCCL_STREAM_SYNC, config);
    default: {
        size_t counts[size] = {0};
        counts[0] = count / 3;
        counts[size - 1] = count - count / 3;
        return qcclReduceScatterVConfig(send, recv, counts, NULL, job->type, op, comm,
                                        QCCL_STREAM_SYNC, config);
    }
    }
}

/* Makes each call with the operation and with products, and compares all bytes. */
static qcclResult_t compare(int rank, qcclComm_t comm, void *context)
{
    const job_t *job = context;
    const size_t bytes = job->count * job->value_bytes;
    unsigned char *const send = take_bytes(rank, bytes), *const recv = take_bytes(rank, bytes);
    unsigned char *const twin = take_bytes(rank, bytes), *const twin_recv = take_bytes(rank, bytes);
    unsigned char *const factor = take_bytes(rank, most_value_bytes);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclRedOp_t op = 0;
    qcclResult_t result;
    int kind, round;
    memcpy(factor, job->factors[rank], most_value_bytes);
    result = job->is_read_late
                 ? qcclRedOpCreatePreMulSum(&op, factor, job->type, qcclScalarDevice, comm)
                 : qcclRedOpCreatePreMulSum(&op, job->factors[rank], job->type,
                                            qcclScalarHostImmediate, comm);
    if (result == qcclSuccess && job->codec) result = qcclCodecCreate(&config.codec, job->codec);
    for (kind = 0; kind < kinds && result == qcclSuccess; kind++)
        for (round = 0; round < 2 && result == qcclSuccess; round++) {
            memcpy(send, job->inputs[rank], bytes);
            memcpy(twin, job->products[rank], bytes);
            memset(recv, 0, bytes);
            memset(twin_recv, 0, bytes);
            result = reduce(kind, send, recv, job, op, comm, &config);
            if (result == qcclSuccess)
                result = reduce(kind, twin, twin_recv, job, qcclSum, comm, &config);
            if (result == qcclSuccess && (memcmp(recv, twin_recv, bytes) != 0 ||
                                          (kind == 1 && memcmp(send, twin, bytes) != 0)))
                result = qcclInternalError;
        }
    if (op != 0) qcclRedOpDestroy(op);
    qcclCodecDestroy(config.codec);
    give_memory(send);
    give_memory(recv);
    give_memory(twin);
    give_memory(twin_recv);
    give_memory(factor);
    return result;
}

static void check(job_t job)
{
    const size_t bytes = job.count * job.value_bytes;
    outcome_t outcome;
    int rank;
    for (rank = 0; rank < size; rank++) {
        multiplied_t multiplied = {&job, rank, job.count};
        job.inputs[rank] = malloc(bytes);
        job.products[rank] = malloc(bytes);
        fill(job.inputs[rank], bytes, (unsigned)(rank * 100 + job.type));
        outcome = on_every_rank(&pair, multiply, &multiplied);
        assert_all_succeed(&outcome, 2);
    }
    outcome = on_every_rank(&world, compare, &job);
    assert_all_succeed(&outcome, size);
    for (rank = 0; rank < size; rank++) {
        free(job.inputs[rank]);
        free(job.products[rank]);
    }
}

static void results_are_those_of_products(void **state)
{
    static const job_t jobs[] = {
        {.type = qcclInt8, .value_bytes = 1},       {.type = qcclUint8, .value_bytes = 1},
        {.type = qcclInt32, .value_bytes = 4},      {.type = qcclUint32, .value_bytes = 4},
        {.type = qcclInt64, .value_bytes = 8},      {.type = qcclUint64, .value_bytes = 8},
        {.type = qcclFloat16, .value_bytes = 2},    {.type = qcclFloat32, .value_bytes = 4},
        {.type = qcclFloat64, .value_bytes = 8},    {.type = qcclBfloat16, .value_bytes = 2},
        {.type = qcclFloat8e4m3, .value_bytes = 1}, {.type = qcclFloat8e5m2, .value_bytes = 1},
        {.type = qcclInt16, .value_bytes = 2},      {.type = qcclUint16, .value_bytes = 2},
        {.type = qcclComplex64, .value_bytes = 8},  {.type = qcclComplex128, .value_bytes = 16}};
    static const size_t counts[] = {4 * size, many};
    size_t i, k;
    int rank;
    (void)state;
    for (i = 0; i < sizeof jobs / sizeof *jobs; i++)
        for (k = 0; k < 2; k++) {
            job_t job = jobs[i];
            job.count = counts[k];
            job.is_read_late = (i + k) % 2 != 0;
            for (rank = 0; rank < size; rank++)
                fill(job.factors[rank], most_value_bytes, (unsigned)(rank * 7 + job.type + 1));
            check(job);
        }
}

static void codecs_encode_products(void **state)
{
    static const char *const codecs[] = {"int8:min=0", "minmax:bucket=all,min=0", "fp16:min=0",
                                         "int4:block=32,min=0"};
    size_t i;
    int rank;
    (void)state;
    for (i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        job_t job = {.type = qcclFloat32, .value_bytes = 4, .count = many, .codec = codecs[i]};
        for (rank = 0; rank < size; rank++) {
            const float factor = 0.75F + (float)rank;
            memcpy(job.factors[rank], &factor, sizeof factor);
        }
        check(job);
    }
}

/* ---- Scalars and refusals */

static qcclResult_t change_scalar(int rank, qcclComm_t comm, void *context)
{
    float *const scalar = take_bytes(rank, sizeof *scalar);
    float *const values = take_bytes(rank, sizeof *values);
    float immediate = 3;
    qcclRedOp_t late = 0, at_once = 0;
    qcclResult_t result;
    int i;
    (void)context;
    *scalar = 0;
    result = qcclRedOpCreatePreMulSum(&late, scalar, qcclFloat32, qcclScalarDevice, comm);
    if (result == qcclSuccess)
        result = qcclRedOpCreatePreMulSum(&at_once, &immediate, qcclFloat32,
                                          qcclScalarHostImmediate, comm);
    immediate = 100;
    for (i = 1; i <= 3 && result == qcclSuccess; i++) {
        *scalar = (float)i;
        *values = 2;
        result = qcclAllReduce(values, values, 1, qcclFloat32, late, comm, QCCL_STREAM_SYNC);
        if (result == qcclSuccess && *values != (float)(2 * i * size)) result = qcclInternalError;
        *values = 2;
        if (result == qcclSuccess)
            result = qcclAllReduce(values, values, 1, qcclFloat32, at_once, comm, QCCL_STREAM_SYNC);
        if (result == qcclSuccess && *values != (float)(6 * size)) result = qcclInternalError;
    }
    qcclRedOpDestroy(late);
    qcclRedOpDestroy(at_once);
    give_memory(scalar);
    give_memory(values);
    return result;
}

static void a_scalar_is_read_late_or_at_once(void **state)
{
    const outcome_t outcome = on_every_rank(&world, change_scalar, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
}

static void misuse_is_refused(void **state)
{
    const qcclComm_t comm = world.comms[0];
    unsigned char *const memory = take_bytes(0, 64);
    const float scalar = 2;
    qcclRedOp_t op = 0;
    (void)state;
    assert_int_equal(
        qcclRedOpCreatePreMulSum(NULL, &scalar, qcclFloat32, qcclScalarHostImmediate, comm),
        qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "op_out is NULL");
    assert_int_equal(
        qcclRedOpCreatePreMulSum(&op, NULL, qcclFloat32, qcclScalarHostImmediate, comm),
        qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "scalar is NULL");
    assert_int_equal(
        qcclRedOpCreatePreMulSum(&op, &scalar, qcclBool, qcclScalarHostImmediate, comm),
        qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "op is mulsum, which bool values do not have");
    assert_int_equal(qcclRedOpCreatePreMulSum(&op, &scalar, qcclFloat32, 2, comm),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "residence is 2");
    assert_int_equal(
        qcclRedOpCreatePreMulSum(&op, &scalar, qcclFloat32, qcclScalarHostImmediate, NULL),
        qcclInvalidArgument);
    if (on_gpus) {
        assert_int_equal(
            qcclRedOpCreatePreMulSum(&op, &scalar, qcclFloat32, qcclScalarDevice, comm),
            qcclInvalidArgument);
        assert_says(qcclGetLastError(NULL), "scalar is");
    }
    assert_int_equal(
        qcclRedOpCreatePreMulSum(&op, &scalar, qcclFloat32, qcclScalarHostImmediate, comm),
        qcclSuccess);
    assert_int_equal(qcclAllReduce(memory, memory, 1, qcclFloat64, op, comm, QCCL_STREAM_SYNC),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(comm), "op multiplies by a value of float, but type is double");
    assert_int_equal(qcclRedOpDestroy(op), qcclSuccess);
    assert_int_equal(qcclAllReduce(memory, memory, 1, qcclFloat32, op, comm, QCCL_STREAM_SYNC),
                     qcclInvalidUsage);
    give_memory(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_products),
        cmocka_unit_test(codecs_encode_products),
        cmocka_unit_test(a_scalar_is_read_late_or_at_once),
        cmocka_unit_test(misuse_is_refused),
    };
    /* Short segments, so that vectors have several of them. */
    if (setenv("QCCL_SEGMENT", "4K", 1) != 0) return 1;
    return cmocka_run_group_tests(tests, make, end);
}
