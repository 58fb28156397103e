/* Tests sends and receives over threads: what arrives, in which order, with codecs and on streams,
 * in circles; and what is refused, does not match, or never comes. */
#include "tests/api/api_kit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { size = 4, large = 700001 };

static float value(int from, int to, size_t i)
{
    return (float)((from * 8 + to) * 1000) + (float)(i % 997);
}

static void fill(float *values, size_t count, int from, int to)
{
    size_t i;
    for (i = 0; i < count; i++) values[i] = value(from, to, i);
}

static int is_right(const float *values, size_t count, int from, int to)
{
    size_t i;
    for (i = 0; i < count; i++)
        if (values[i] != value(from, to, i)) return 0;
    return 1;
}

/* Every rank sends to every other one, the lower ranks of each pair first. */
static qcclResult_t all_pairs(int rank, qcclComm_t comm, void *context)
{
    static const size_t counts[] = {0, 1, 1000, large};
    float *const values = malloc(large * sizeof *values);
    qcclResult_t result = qcclSuccess;
    size_t c;
    int peer, turn;
    (void)context;
    for (c = 0; c < sizeof counts / sizeof *counts; c++)
        for (peer = 0; peer < size; peer++)
            for (turn = 0; turn < 2 && peer != rank && result == qcclSuccess; turn++) {
                const int sends = (rank < peer) == (turn == 0);
                if (sends) {
                    fill(values, counts[c], rank, peer);
                    result = qcclSend(values, counts[c], qcclFloat32, peer, comm, NULL);
                } else {
                    result = qcclRecv(values, counts[c], qcclFloat32, peer, comm, NULL);
                    if (result == qcclSuccess && !is_right(values, counts[c], peer, rank))
                        result = qcclInternalError;
                }
            }
    free(values);
    return result;
}

static void every_rank_reaches_every_other(void **state)
{
    int kind;
    (void)state;
    for (kind = 0; kind < 2; kind++) {
        world_t world = kind ? make_world(size) : join_world(size, NULL);
        const outcome_t outcome = on_every_rank(&world, all_pairs, NULL);
        assert_all_succeed(&outcome, size);
        assert_works(&world);
        end_world(&world);
    }
}

static qcclResult_t in_a_circle(int rank, qcclComm_t comm, void *context)
{
    static const size_t counts[] = {1, 5000, large};
    const int next = (rank + 1) % size, last = (rank + size - 1) % size;
    float *const values = malloc(2 * large * sizeof *values);
    qcclResult_t result = qcclSuccess;
    size_t c;
    int round;
    (void)context;
    for (c = 0; c < sizeof counts / sizeof *counts; c++)
        for (round = 0; round < 3 && result == qcclSuccess; round++) {
            fill(values, counts[c], rank, next);
            result = qcclSendRecv(values, counts[c], next, values + large, counts[c], last,
                                  qcclFloat32, comm, NULL);
            if (result == qcclSuccess && !is_right(values + large, counts[c], last, rank))
                result = qcclInternalError;
        }
    free(values);
    return result;
}

static void a_circle_does_not_wait_for_itself(void **state)
{
    world_t world = join_world(size, NULL);
    const outcome_t outcome = on_every_rank(&world, in_a_circle, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
    end_world(&world);
}

/* Rank 0 sends to rank 1, which has not taken an earlier message yet, and receives from rank 2.
 * Rank 2 goes on only when rank 0 has received, and rank 1 takes its messages only after that. */
static qcclResult_t send_while_receiving(int rank, qcclComm_t comm, void *context)
{
    float out[2] = {1, 2}, in[2] = {0, 0};
    qcclResult_t result = qcclSuccess;
    int peer, round;
    (void)context;
    /* Channels exist before. */
    for (peer = 0; peer < 3 && rank < 3 && result == qcclSuccess; peer++)
        if (peer != rank) result = qcclSendRecv(out, 2, peer, in, 2, peer, qcclFloat32, comm, NULL);
    for (round = 0; round < 50 && result == qcclSuccess; round++) {
#define CALL(MESSAGE)                                                                              \
    if (result == qcclSuccess) result = (MESSAGE)
        if (rank == 0) {
            CALL(qcclSend(out, 2, qcclFloat32, 1, comm, NULL));
            CALL(qcclSendRecv(out, 2, 1, in, 2, 2, qcclFloat32, comm, NULL));
            CALL(qcclRecv(in, 2, qcclFloat32, 2, comm, NULL));
        } else if (rank == 1) {
            CALL(qcclRecv(in, 2, qcclFloat32, 2, comm, NULL));
            CALL(qcclRecv(in, 2, qcclFloat32, 0, comm, NULL));
            CALL(qcclRecv(in, 2, qcclFloat32, 0, comm, NULL));
        } else if (rank == 2) {
            CALL(qcclSend(out, 2, qcclFloat32, 0, comm, NULL));
            CALL(qcclSend(out, 2, qcclFloat32, 0, comm, NULL));
            CALL(qcclSend(out, 2, qcclFloat32, 1, comm, NULL));
        }
#undef CALL
        if (result == qcclSuccess && rank < 2 && (in[0] != 1 || in[1] != 2))
            result = qcclInternalError;
    }
    return result;
}

static void a_send_that_waits_holds_up_no_receive(void **state)
{
    world_t world = make_world(size);
    const outcome_t outcome = on_every_rank(&world, send_while_receiving, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
    end_world(&world);
}

static qcclResult_t to_itself(int rank, qcclComm_t comm, void *context)
{
    float send[3] = {1, 2, 3}, recv[3] = {0};
    const qcclResult_t result =
        qcclSendRecv(send, 3, rank, recv, 3, rank, qcclFloat32, comm, QCCL_STREAM_SYNC);
    (void)context;
    return result == qcclSuccess && memcmp(send, recv, sizeof send) != 0 ? qcclInternalError
                                                                         : result;
}

static void a_rank_may_send_to_itself(void **state)
{
    world_t world = make_world(2);
    const outcome_t outcome = on_every_rank(&world, to_itself, NULL);
    (void)state;
    assert_all_succeed(&outcome, 2);
    end_world(&world);
}

/* Both directions at once on streams, beside collectives that are not enqueued, with a codec. */
static qcclResult_t on_streams(int rank, qcclComm_t comm, void *context)
{
    enum { count = 20000, rounds = 10 };
    const int peer = rank ^ 1;
    float *const send = malloc(count * sizeof *send), *const recv = malloc(count * sizeof *recv);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclStream_t streams[2] = {NULL, NULL};
    qcclResult_t result = qcclCodecCreate(&config.codec, "int8:min=0");
    int round, i, sum;
    (void)context;
    for (i = 0; i < 2 && result == qcclSuccess; i++) result = qcclStreamCreate(&streams[i]);
    for (round = 0; round < rounds && result == qcclSuccess; round++) {
        fill(send, count, rank, peer);
        result = qcclSendConfig(send, count, qcclFloat32, peer, comm, streams[0], &config);
        if (result == qcclSuccess)
            result = qcclRecvConfig(recv, count, qcclFloat32, peer, comm, streams[1], &config);
        sum = rank;
        if (result == qcclSuccess)
            result = qcclAllReduce(&sum, &sum, 1, qcclInt32, qcclSum, comm, NULL);
        if (result == qcclSuccess && sum != 6) result = qcclInternalError;
        for (i = 0; i < 2 && result == qcclSuccess; i++) result = qcclStreamSynchronize(streams[i]);
        for (i = 0; i < count && result == qcclSuccess; i++)
            if (fabsf(recv[i] - value(peer, rank, (size_t)i)) > 150) result = qcclInternalError;
    }
    for (i = 0; i < 2; i++) qcclStreamDestroy(streams[i]);
    qcclCodecDestroy(config.codec);
    free(send);
    free(recv);
    return result;
}

static void streams_and_codecs_serve_messages(void **state)
{
    world_t world = join_world(size, NULL);
    const outcome_t outcome = on_every_rank(&world, on_streams, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
    end_world(&world);
}

static void refused(qcclResult_t result, const char *part)
{
    assert_int_equal(result, qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), part);
}

static void refuse_all(qcclComm_t comm)
{
    float data[8] = {0};
    refused(qcclSend(data, 8, qcclFloat32, 0, comm, NULL), "peer is 0, this rank itself");
    refused(qcclSend(data, 8, qcclFloat32, 2, comm, NULL), "peer is 2, but the ranks are 0 to 1");
    refused(qcclRecv(data, 8, qcclFloat32, -1, comm, NULL), "peer is -1");
    refused(qcclSend(data, 8, 77, 1, comm, NULL), "type is 77");
    refused(qcclSend(NULL, 8, qcclFloat32, 1, comm, NULL), "send is NULL");
    refused(qcclRecv(NULL, 8, qcclFloat32, 1, comm, NULL), "recv is NULL");
    refused(qcclRecv(data, SIZE_MAX / 2, qcclFloat32, 1, comm, NULL), "count is");
    refused(qcclSendRecv(data, 4, 1, data + 2, 4, 1, qcclFloat32, comm, NULL), "overlap");
    refused(qcclSendRecv(NULL, 4, 1, data, 4, 1, qcclFloat32, comm, NULL), "send is NULL");
    refused(qcclSendRecv(data, 4, 0, data + 4, 4, 1, qcclFloat32, comm, NULL),
            "dest is 0 and source is 1");
    refused(qcclSendRecv(data, 4, 0, data + 4, 3, 0, qcclFloat32, comm, NULL),
            "recv_count is not send_count");
    refused(qcclSendRecv(data, 4, 1, data + 4, 4, 3, qcclFloat32, comm, NULL), "source is 3");
}

/* Makes the calls that refuse_all makes wrongly, so that wrong ones seem to repeat them. */
static qcclResult_t make_them_rightly(int rank, qcclComm_t comm, void *context)
{
    float sent[8] = {(float)rank, 1, 2, 3}, received[8];
    const int peer = 1 - rank;
    int i;
    (void)context;
    for (i = 0; i < 4; i++) {
        qcclResult_t result =
            qcclSendRecv(sent, 4, peer, received, 4, peer, qcclFloat32, comm, NULL);
        if (result == qcclSuccess && (received[0] != (float)peer || received[3] != 3))
            return qcclInternalError;
        if (result == qcclSuccess)
            result = (i + rank) % 2 ? qcclSend(sent, 8, qcclFloat32, peer, comm, NULL)
                                    : qcclRecv(received, 8, qcclFloat32, peer, comm, NULL);
        if (result != qcclSuccess) return result;
    }
    return qcclSuccess;
}

static void wrong_arguments_are_refused(void **state)
{
    world_t world = make_world(2);
    outcome_t outcome;
    (void)state;
    refuse_all(world.comms[0]);
    outcome = on_every_rank(&world, make_them_rightly, NULL);
    assert_all_succeed(&outcome, 2);
    refuse_all(world.comms[0]);
    assert_works(&world);
    end_world(&world);
}

/* Rank 2 expects another count than rank 1 sends; rank 0 hears of it. */
static qcclResult_t with_other_counts(int rank, qcclComm_t comm, void *context)
{
    float data[16] = {0};
    qcclResult_t result = qcclSuccess;
    (void)context;
    if (rank == 1) result = qcclSend(data, 8, qcclFloat32, 2, comm, NULL);
    if (rank == 2) result = qcclRecv(data, 9, qcclFloat32, 1, comm, NULL);
    return result == qcclSuccess ? qcclBarrier(comm, NULL) : result;
}

static void other_counts_are_a_mismatch(void **state)
{
    world_t world = join_world(3, NULL);
    const outcome_t outcome = on_every_rank(&world, with_other_counts, NULL);
    int rank;
    (void)state;
    for (rank = 0; rank < 3; rank++) assert_int_equal(outcome.result[rank], qcclMismatch);
    assert_says(outcome.sentence[2], "rank 1 sends with count 8");
    assert_says(outcome.sentence[2], "rank 2 receives with count 9");
    assert_says(outcome.sentence[2], "in a message from rank 1 to rank 2");
    end_world(&world);
}

/* The mismatch comes from the stream; a rank that only watches hears of it, too. */
static qcclResult_t with_other_counts_on_streams(int rank, qcclComm_t comm, void *context)
{
    float data[9] = {0};
    qcclStream_t stream = NULL;
    qcclRequest_t request = NULL;
    qcclResult_t result = qcclStreamCreate(&stream);
    (void)context;
    if (result == qcclSuccess && rank == 1)
        result = qcclSend(data, 8, qcclFloat32, 2, comm, stream);
    if (result == qcclSuccess && rank == 2)
        result = qcclRecv(data, 9, qcclFloat32, 1, comm, stream);
    if (result == qcclSuccess) result = qcclRequestRecord(stream, &request);
    if (result == qcclSuccess) result = qcclWait(&request);
    qcclStreamDestroy(stream);
    return result == qcclSuccess ? qcclBarrier(comm, NULL) : result;
}

static void a_stream_tells_the_communicator(void **state)
{
    qcclConfig_t configs[3] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    world_t world;
    outcome_t outcome;
    int rank;
    (void)state;
    for (rank = 0; rank < 3; rank++) configs[rank].timeout = 10;
    world = join_world(3, configs);
    outcome = on_every_rank(&world, with_other_counts_on_streams, NULL);
    assert_all_say(&outcome, 3, qcclMismatch, "in a message from rank 1 to rank 2");
    for (rank = 0; rank < 3; rank++) /* each rank has been told */
        assert_int_equal(qcclCommDestroy(world.comms[rank]), qcclSuccess);
}

/* Two ranks whose calls wait so many seconds. */
static world_t join_two(double timeout)
{
    qcclConfig_t configs[2] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    configs[0].timeout = configs[1].timeout = timeout;
    return join_world(2, configs);
}

static qcclResult_t without_a_receiver(int rank, qcclComm_t comm, void *context)
{
    float data[4] = {0};
    (void)context;
    return rank == 0 ? qcclSend(data, 4, qcclFloat32, 1, comm, NULL) : qcclSuccess;
}

/* The sentence names both ranks. */
static void a_send_without_a_receive_times_out(void **state)
{
    world_t world = join_two(1);
    const outcome_t outcome = on_every_rank(&world, without_a_receiver, NULL);
    (void)state;
    assert_int_equal(outcome.result[0], qcclTimeout);
    assert_says(outcome.sentence[0], "rank 0");
    assert_says(outcome.sentence[0], "rank 1");
    assert_says(outcome.sentence[0], "qcclSend or qcclRecv");
    end_world(&world);
}

static qcclResult_t impatient(int rank, qcclComm_t comm, void *context)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    float data[4] = {0};
    (void)context;
    config.timeout = 0.5;
    return rank == 0 ? qcclSendConfig(data, 4, qcclFloat32, 1, comm, NULL, &config) : qcclSuccess;
}

/* Also if the message is the first one between its ranks. */
static void a_message_has_a_timeout_of_its_own(void **state)
{
    world_t world = join_two(30);
    const outcome_t outcome = on_every_rank(&world, impatient, NULL);
    (void)state;
    assert_int_equal(outcome.result[0], qcclTimeout);
    assert_says(outcome.sentence[0], "within 0.5 s");
    end_world(&world);
}

/* The first message made the channel; the second one is never received. */
static qcclResult_t second_is_not_received(int rank, qcclComm_t comm, void *context)
{
    float *const data = calloc(large, sizeof *data);
    qcclResult_t result = rank == 0 ? qcclSend(data, 4, qcclFloat32, 1, comm, NULL)
                                    : qcclRecv(data, 4, qcclFloat32, 0, comm, NULL);
    (void)context;
    if (result == qcclSuccess && rank == 0)
        result = qcclSend(data, large, qcclFloat32, 1, comm, NULL);
    free(data);
    return result;
}

static void a_later_send_times_out_too(void **state)
{
    world_t world = join_two(1);
    const outcome_t outcome = on_every_rank(&world, second_is_not_received, NULL);
    (void)state;
    assert_int_equal(outcome.result[0], qcclTimeout);
    assert_says(outcome.sentence[0],
                "rank 1 did not come to a message from rank 0 to rank 1 within 1 s: "
                "rank 0 waits to send to rank 1; rank 1 is in no call before the first");
    assert_int_equal(outcome.result[1], qcclSuccess);
    end_world(&world);
}

static qcclResult_t revoked_meanwhile(int rank, qcclComm_t comm, void *context)
{
    float data[4] = {0};
    qcclResult_t result;
    (void)context;
    if (rank == 2) {
        const struct timespec pause = {0, 200000000};
        nanosleep(&pause, NULL);
        return qcclCommRevoke(comm);
    }
    result = rank == 0 ? qcclSend(data, 4, qcclFloat32, 1, comm, NULL)
                       : qcclRecv(data, 4, qcclFloat32, 0, comm, NULL);
    if (result != qcclSuccess) return result;
    if (rank == 1) result = qcclRecv(data, 4, qcclFloat32, 0, comm, NULL); /* nobody sends it */
    return result;
}

static void a_revocation_ends_a_receive(void **state)
{
    world_t world = join_world(3, NULL);
    const outcome_t outcome = on_every_rank(&world, revoked_meanwhile, NULL);
    (void)state;
    assert_int_equal(outcome.result[0], qcclSuccess);
    assert_int_equal(outcome.result[1], qcclRevoked);
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_reaches_every_other),
        cmocka_unit_test(a_circle_does_not_wait_for_itself),
        cmocka_unit_test(a_send_that_waits_holds_up_no_receive),
        cmocka_unit_test(a_rank_may_send_to_itself),
        cmocka_unit_test(streams_and_codecs_serve_messages),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(other_counts_are_a_mismatch),
        cmocka_unit_test(a_stream_tells_the_communicator),
        cmocka_unit_test(a_send_without_a_receive_times_out),
        cmocka_unit_test(a_message_has_a_timeout_of_its_own),
        cmocka_unit_test(a_later_send_times_out_too),
        cmocka_unit_test(a_revocation_ends_a_receive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
