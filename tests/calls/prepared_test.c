/* Tests prepared calls: each start gives the result of the plain call, also beside ranks that make
 * the plain call, on streams and with codecs; and what is refused. */
#include "tests/api/api_kit.h"

#include <stdlib.h>
#include <string.h>

enum { size = 3, values = 5003, rounds = 20 };

typedef struct {
    const char *codec;
    int is_streamed;
    float *plain[size], *prepared[size];
} job_t;

static void fill(float *to, int rank, int round)
{
    int i;
    for (i = 0; i < values; i++) to[i] = (float)((rank + 1) * (i % 89) - 40 * round);
}

/* The same calls twice, plain and prepared. Rank 1 prepares nothing. */
static qcclResult_t plainly_and_prepared(int rank, qcclComm_t comm, void *context)
{
    const job_t *job = context;
    float *const send = malloc(values * sizeof *send);
    float *plain = job->plain[rank], *prepared = job->prepared[rank];
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclStream_t stream = NULL;
    qcclColl_t coll = NULL;
    qcclResult_t result = qcclSuccess;
    int round;
    if (job->codec) result = qcclCodecCreate(&config.codec, job->codec);
    if (result == qcclSuccess && job->is_streamed) result = qcclStreamCreate(&stream);
    if (result == qcclSuccess && rank != 1)
        result = qcclCollCreate(&coll, qcclCollAllReduce, send, prepared, values, qcclFloat32,
                                qcclSum, 0, comm, stream, &config);
    for (round = 0; round < rounds && result == qcclSuccess; round++) {
        fill(send, rank, round);
        result =
            qcclAllReduceConfig(send, plain, values, qcclFloat32, qcclSum, comm, stream, &config);
        if (result != qcclSuccess) break;
        result = coll ? qcclCollStart(coll)
                      : qcclAllReduceConfig(send, prepared, values, qcclFloat32, qcclSum, comm,
                                            stream, &config);
        if (result == qcclSuccess && stream) result = qcclStreamSynchronize(stream);
        if (result == qcclSuccess && memcmp(plain, prepared, values * sizeof *plain) != 0)
            result = qcclInternalError;
    }
    if (result == qcclSuccess && round != rounds) result = qcclInternalError;
    if (coll && qcclCollFree(coll) != qcclSuccess) result = qcclInternalError;
    qcclStreamDestroy(stream);
    qcclCodecDestroy(config.codec);
    free(send);
    return result;
}

static void prepared_calls_are_plain_calls(void **state)
{
    static const char *const codecs[] = {NULL, "int8:min=0", "topk:ratio=0.1,min=0"};
    int kind, rank;
    (void)state;
    for (kind = 0; kind < 6; kind++) {
        world_t world = kind % 2 ? make_world(size) : join_world(size, NULL);
        job_t job = {.codec = codecs[kind / 2], .is_streamed = kind % 2};
        outcome_t outcome;
        for (rank = 0; rank < size; rank++) {
            job.plain[rank] = calloc(values, sizeof(float));
            job.prepared[rank] = calloc(values, sizeof(float));
        }
        outcome = on_every_rank(&world, plainly_and_prepared, &job);
        assert_all_succeed(&outcome, size);
        for (rank = 0; rank < size; rank++) {
            free(job.plain[rank]);
            free(job.prepared[rank]);
        }
        end_world(&world);
    }
}

/* Each collective, with a result that is easy to say: all ranks give ones, or their numbers. */
static qcclResult_t every_collective(int rank, qcclComm_t comm, void *context)
{
    static const struct {
        qcclCollective_t collective;
        int32_t expected[size];
    } rows[] = {{qcclCollAllReduce, {3, 3, 3}}, {qcclCollReduceScatter, {3, 3, 3}},
                {qcclCollAllGather, {1, 1, 1}}, {qcclCollBroadcast, {1, 1, 1}},
                {qcclCollReduce, {7, 3, 7}},    {qcclCollGather, {7, 1, 7}},
                {qcclCollScatter, {1, 1, 1}},   {qcclCollAllToAll, {1, 1, 1}},
                {qcclCollScan, {1, 2, 3}},      {qcclCollExscan, {7, 1, 2}},
                {qcclCollBarrier, {7, 7, 7}}};
    size_t i;
    (void)context;
    for (i = 0; i < sizeof rows / sizeof *rows; i++) {
        int32_t send[size] = {1, 1, 1}, recv[size] = {7, 7, 7};
        qcclColl_t coll;
        qcclResult_t result = qcclCollCreate(&coll, rows[i].collective, send, recv, 1, qcclInt32,
                                             qcclSum, 1, comm, NULL, NULL);
        int round;
        for (round = 0; round < 3 && result == qcclSuccess; round++) result = qcclCollStart(coll);
        if (result == qcclSuccess) result = qcclCollFree(coll);
        if (result != qcclSuccess) return result;
        if (recv[0] != rows[i].expected[rank]) return qcclInternalError;
    }
    return qcclSuccess;
}

static void every_collective_can_be_prepared(void **state)
{
    world_t world = make_world(size);
    const outcome_t outcome = on_every_rank(&world, every_collective, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
    end_world(&world);
}

static void wrong_arguments_are_refused(void **state)
{
    world_t world = make_world(2);
    float data[8] = {0};
    qcclColl_t coll = NULL;
    qcclComm_t comm = world.comms[0];
    (void)state;
#define REFUSED(words, ...)                                                                        \
    assert_int_equal(qcclCollCreate(__VA_ARGS__), qcclInvalidArgument);                            \
    assert_says(qcclGetLastError(NULL), words);                                                    \
    assert_null(coll)
    REFUSED("coll_out is NULL", NULL, qcclCollAllReduce, data, data, 8, qcclFloat32, qcclSum, 0,
            comm, NULL, NULL);
    REFUSED("collective is 5", &coll, 5, data, data, 8, qcclFloat32, qcclSum, 0, comm, NULL, NULL);
    REFUSED("collective is 13", &coll, 13, data, data, 8, qcclFloat32, qcclSum, 0, comm, NULL,
            NULL);
    REFUSED("collective is -1", &coll, -1, data, data, 8, qcclFloat32, qcclSum, 0, comm, NULL,
            NULL);
    REFUSED("type is 99", &coll, qcclCollAllReduce, data, data, 8, 99, qcclSum, 0, comm, NULL,
            NULL);
    REFUSED("recv is NULL", &coll, qcclCollAllReduce, data, NULL, 8, qcclFloat32, qcclSum, 0, comm,
            NULL, NULL);
    REFUSED("overlap", &coll, qcclCollAllReduce, data, data + 1, 4, qcclFloat32, qcclSum, 0, comm,
            NULL, NULL);
    REFUSED("root is 2", &coll, qcclCollBroadcast, data, data, 8, qcclFloat32, qcclSum, 2, comm,
            NULL, NULL);
    REFUSED("stream is 0x", &coll, qcclCollBarrier, NULL, NULL, 0, 0, 0, 0, comm,
            (qcclStream_t)data, NULL);
#undef REFUSED
    assert_works(&world);
    end_world(&world);
}

static void ended_handles_are_refused(void **state)
{
    world_t world = make_world(2);
    float data[8] = {0};
    qcclColl_t coll = NULL, left = NULL;
    qcclStream_t stream = NULL;
    (void)state;
    assert_int_equal(qcclCollStart(NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "coll is NULL");
    assert_int_equal(qcclCollStart((qcclColl_t)data), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "no qcclCollCreate made");
    assert_int_equal(qcclCollFree(NULL), qcclSuccess);

    assert_int_equal(qcclStreamCreate(&stream), qcclSuccess);
    assert_int_equal(qcclCollCreate(&coll, qcclCollAllReduce, data, data, 8, qcclFloat32, qcclSum,
                                    0, world.comms[0], stream, NULL),
                     qcclSuccess);
    assert_int_equal(
        qcclCollCreate(&left, qcclCollBarrier, NULL, NULL, 0, 0, 0, 0, world.comms[0], NULL, NULL),
        qcclSuccess);
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
    assert_int_equal(qcclCollStart(coll), qcclInvalidUsage);
    assert_says(qcclGetLastError(NULL), "stream");
    assert_int_equal(qcclCollFree(coll), qcclSuccess);
    assert_int_equal(qcclCollStart(coll), qcclInvalidUsage);
    assert_says(qcclGetLastError(NULL), "freed");
    assert_int_equal(qcclCollFree(coll), qcclInvalidUsage);

    assert_works(&world);
    end_world(&world);
    assert_int_equal(qcclCollStart(left), qcclInvalidUsage);
    assert_says(qcclGetLastError(NULL), "comm is 0x");
    assert_int_equal(qcclCollFree(left), qcclSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prepared_calls_are_plain_calls),
        cmocka_unit_test(every_collective_can_be_prepared),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(ended_handles_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
