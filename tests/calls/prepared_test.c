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

/* The counts of a v-form: from rank r to rank s. Rank 1 is the root. */
static size_t part(int from, int to) { return (size_t)(from + 2 * to) % 4; }

typedef struct {
    size_t send_counts[size], recv_counts[size], send_displs[size], recv_displs[size];
} parts_t;

static parts_t parts_of(qcclCollective_t collective, int rank)
{
    const int has_common = collective == qcclCollAllGatherV || collective == qcclCollReduceScatterV;
    parts_t parts;
    int each;
    for (each = 0; each < size; each++) {
        parts.send_counts[each] = has_common ? part(0, each) : part(rank, each);
        parts.recv_counts[each] = has_common ? part(0, each) : part(each, rank);
        if (collective == qcclCollGatherV) parts.recv_counts[each] = part(each, 0);
        if (collective == qcclCollScatterV) parts.send_counts[each] = part(0, each);
        parts.send_displs[each] = (size_t)(4 * each + rank % 2);
        parts.recv_displs[each] = (size_t)(5 * (size - 1 - each));
    }
    if (collective == qcclCollGatherV) parts.send_counts[0] = part(rank, 0);
    if (collective == qcclCollScatterV) parts.recv_counts[0] = part(0, rank);
    return parts;
}

static qcclResult_t plain_v_form(qcclCollective_t collective, const parts_t *p, const float *send,
                                 float *recv, qcclComm_t comm, qcclStream_t stream)
{
    switch (collective) {
    case qcclCollAllGatherV:
        return qcclAllGatherV(send, recv, p->recv_counts, p->recv_displs, qcclFloat32, comm,
                              stream);
    case qcclCollReduceScatterV:
        return qcclReduceScatterV(send, recv, p->send_counts, p->send_displs, qcclFloat32, qcclSum,
                                  comm, stream);
    case qcclCollGatherV:
        return qcclGatherV(send, p->send_counts[0], recv, p->recv_counts, p->recv_displs,
                           qcclFloat32, 1, comm, stream);
    case qcclCollScatterV:
        return qcclScatterV(send, p->send_counts, p->send_displs, recv, p->recv_counts[0],
                            qcclFloat32, 1, comm, stream);
    default:
        return qcclAllToAllV(send, p->send_counts, p->send_displs, recv, p->recv_counts,
                             p->recv_displs, qcclFloat32, comm, stream);
    }
}

/* Rank 1 prepares nothing every other time. The arrays change when the call is prepared. */
static qcclResult_t prepared_v_form(int rank, qcclComm_t comm, qcclStream_t stream,
                                    qcclCollective_t collective, int all_prepare)
{
    const parts_t given = parts_of(collective, rank);
    parts_t passed = given;
    float send[16] = {0}, plain[16], prepared[16];
    qcclColl_t coll = NULL;
    qcclResult_t result = qcclSuccess;
    int round, i;
    if (rank != 1 || all_prepare)
        result = qcclCollCreateV(&coll, collective, send, passed.send_counts, passed.send_displs,
                                 prepared, passed.recv_counts, passed.recv_displs, qcclFloat32,
                                 qcclSum, 1, comm, stream, NULL);
    memset(&passed, 0xff, sizeof passed);
    for (round = 0; round < 3 && result == qcclSuccess; round++) {
        for (i = 0; i < 16; i++) {
            send[i] = (float)(100 * rank + i + 1000 * round);
            plain[i] = prepared[i] = -1;
        }
        result = plain_v_form(collective, &given, send, plain, comm, stream);
        if (result == qcclSuccess)
            result = coll ? qcclCollStart(coll)
                          : plain_v_form(collective, &given, send, prepared, comm, stream);
        if (result == qcclSuccess && stream) result = qcclStreamSynchronize(stream);
        if (result == qcclSuccess && memcmp(plain, prepared, sizeof plain) != 0)
            result = qcclInternalError;
    }
    if (qcclCollFree(coll) != qcclSuccess) result = qcclInternalError;
    return result;
}

static qcclResult_t every_v_form(int rank, qcclComm_t comm, void *context)
{
    qcclStream_t stream = NULL;
    qcclResult_t result = qcclStreamCreate(&stream);
    qcclCollective_t collective;
    int all_prepare;
    (void)context;
    for (all_prepare = 0; all_prepare < 2; all_prepare++)
        for (collective = qcclCollAllGatherV; collective <= qcclCollAllToAllV; collective++) {
            if (result == qcclSuccess)
                result = prepared_v_form(rank, comm, NULL, collective, all_prepare);
            if (result == qcclSuccess)
                result = prepared_v_form(rank, comm, stream, collective, all_prepare);
        }
    qcclStreamDestroy(stream);
    return result;
}

static void every_v_form_can_be_prepared(void **state)
{
    world_t world = make_world(size);
    const outcome_t outcome = on_every_rank(&world, every_v_form, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
    end_world(&world);
}

/* A receiver prepares another count than its sender. */
static qcclResult_t other_count(int rank, qcclComm_t comm, void *context)
{
    const size_t sent = 3, counts[2] = {3, 4};
    float send[4] = {1, 2, 3, 4}, recv[8];
    qcclColl_t coll;
    qcclResult_t result =
        qcclCollCreateV(&coll, qcclCollGatherV, send, rank == 0 ? counts : &sent, NULL, recv,
                        counts, NULL, qcclFloat32, qcclSum, 0, comm, NULL, NULL);
    (void)context;
    if (result == qcclSuccess) result = qcclCollStart(coll);
    qcclCollFree(coll);
    return result;
}

static void other_counts_are_mismatches(void **state)
{
    world_t world = make_world(2);
    outcome_t outcome = on_every_rank(&world, other_count, NULL);
    (void)state;
    assert_int_equal(outcome.result[0], qcclMismatch);
    assert_says(outcome.sentence[0], "rank 1 sends 3 values to rank 0, which expects 4");
    /* The sender has not been told yet. */
    assert_int_equal(qcclCommDestroy(world.comms[1]), qcclMismatch);
    assert_int_equal(qcclCommDestroy(world.comms[0]), qcclSuccess);
}

static void wrong_v_forms_are_refused(void **state)
{
    world_t world = make_world(2);
    const size_t counts[3] = {1, 2, 1}, displs[2] = {1, 0};
    float send[4] = {0}, recv[4] = {0};
    qcclColl_t coll = NULL;
    qcclComm_t comm = world.comms[0];
    (void)state;
#define REFUSED(words, collective, send_counts, recv_counts, recv_displs)                          \
    assert_int_equal(qcclCollCreateV(&coll, collective, send, send_counts, NULL, recv,             \
                                     recv_counts, recv_displs, qcclFloat32, qcclSum, 0, comm,      \
                                     NULL, NULL),                                                  \
                     qcclInvalidArgument);                                                         \
    assert_says(qcclGetLastError(NULL), words);                                                    \
    assert_null(coll)
    REFUSED("collective is gather, which is no v-form", qcclCollGather, counts, counts, NULL);
    REFUSED("collective is 13", 13, counts, counts, NULL);
    REFUSED("collective is 19", 19, counts, counts, NULL);
    REFUSED("send_counts is NULL", qcclCollGatherV, NULL, counts, NULL);
    REFUSED("recv_counts is NULL", qcclCollGatherV, counts, NULL, NULL);
    REFUSED("recv_counts is NULL", qcclCollScatterV, counts, NULL, NULL);
    REFUSED("send_counts is NULL", qcclCollReduceScatterV, NULL, NULL, NULL);
    REFUSED("recv_displs: the parts of rank 0 and of rank 1 overlap", qcclCollAllGatherV, NULL,
            counts, displs);
    REFUSED("send_counts[0] is 1, but recv_counts[0] is 2", qcclCollAllToAllV, counts, counts + 1,
            NULL);
#undef REFUSED
    assert_int_equal(qcclCollCreateV(NULL, qcclCollAllGatherV, send, NULL, NULL, recv, counts, NULL,
                                     qcclFloat32, qcclSum, 0, comm, NULL, NULL),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "coll_out is NULL");
    assert_int_equal(qcclCollCreate(&coll, qcclCollGatherV, send, recv, 1, qcclFloat32, qcclSum, 0,
                                    comm, NULL, NULL),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "collective is gather_v, which qcclCollCreateV prepares");
    assert_works(&world);
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
        cmocka_unit_test(every_v_form_can_be_prepared),
        cmocka_unit_test(other_counts_are_mismatches),
        cmocka_unit_test(wrong_v_forms_are_refused),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(ended_handles_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
