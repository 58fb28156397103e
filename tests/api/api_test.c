/* Tests the C API end to end: every function does its job, both with communicators from one
 * qcclCommInitAll and with communicators that were created rank by rank and do not know that they
 * share a process. */
#include "api_kit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { size = 3, most_values = 5000 };

static float input(int rank, size_t i) { return (float)((rank + 1) * (int)(i % 97) - 40); }

typedef struct {
    size_t count;
    int in_place;
    const qcclCollConfig_t *config;
    float results[most_ranks][size * most_values];
} job_t;

static job_t *new_job(size_t count, int in_place)
{
    job_t *job = calloc(1, sizeof *job);
    assert_non_null(job);
    job->count = count;
    job->in_place = in_place;
    return job;
}

static void fill(float *values, int rank, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) values[i] = input(rank, i);
}

static qcclResult_t all_reduce(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    float send[most_values], *recv = job->results[rank];
    const float *from = job->in_place ? recv : send;
    fill(job->in_place ? recv : send, rank, job->count);
    if (!job->config)
        return qcclAllReduce(from, recv, job->count, qcclFloat32, qcclSum, comm, NULL);
    return qcclAllReduceConfig(from, recv, job->count, qcclFloat32, qcclSum, comm, QCCL_STREAM_SYNC,
                               job->config);
}

static qcclResult_t reduce_scatter(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    float send[size * most_values], *recv = job->results[rank];
    if (!job->in_place) {
        fill(send, rank, size * job->count);
        return qcclReduceScatter(send, recv, job->count, qcclFloat32, qcclMax, comm, NULL);
    }
    fill(recv, rank, size * job->count);
    return qcclReduceScatter(recv, recv + (size_t)rank * job->count, job->count, qcclFloat32,
                             qcclMax, comm, NULL);
}

static qcclResult_t all_gather(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    float send[most_values], *recv = job->results[rank];
    float *own = recv + (size_t)rank * job->count;
    fill(job->in_place ? own : send, rank, job->count);
    return qcclAllGather(job->in_place ? own : send, recv, job->count, qcclFloat32, comm, NULL);
}

/* The root of the collectives that have one. Other ranks pass NULL for the buffer that only the
 * root needs, and in place the other ranks have two buffers. */
enum { root = 1 };

static qcclResult_t broadcast(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    float send[most_values], *recv = job->results[rank];
    fill(job->in_place ? recv : send, rank, job->count);
    return qcclBroadcast(rank != root && !job->in_place ? NULL
                         : job->in_place                ? recv
                                                        : send,
                         recv, job->count, qcclFloat32, root, comm, NULL);
}

static qcclResult_t reduce(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    float send[most_values], *recv = job->results[rank];
    const int in_place = job->in_place && rank == root;
    fill(in_place ? recv : send, rank, job->count);
    return qcclReduce(in_place ? recv : send, rank == root ? recv : NULL, job->count, qcclFloat32,
                      qcclSum, root, comm, NULL);
}

static qcclResult_t gather(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    float send[most_values], *recv = job->results[rank];
    float *const from = job->in_place && rank == root ? recv + root * job->count : send;
    fill(from, rank, job->count);
    return qcclGather(from, rank == root ? recv : NULL, job->count, qcclFloat32, root, comm, NULL);
}

static qcclResult_t scatter(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    float send[size * most_values], *recv = job->results[rank];
    const int in_place = job->in_place && rank == root;
    fill(in_place ? recv : send, rank, size * job->count);
    return qcclScatter(in_place       ? recv
                       : rank == root ? send
                                      : NULL,
                       in_place ? recv + root * job->count : recv, job->count, qcclFloat32, root,
                       comm, NULL);
}

static qcclResult_t all_to_all(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    float send[size * most_values], *recv = job->results[rank];
    fill(job->in_place ? recv : send, rank, size * job->count);
    return qcclAllToAll(job->in_place ? recv : send, recv, job->count, qcclFloat32, comm, NULL);
}

static qcclResult_t scan(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    float send[most_values], *recv = job->results[rank];
    fill(job->in_place ? recv : send, rank, job->count);
    return qcclScan(job->in_place ? recv : send, recv, job->count, qcclFloat32, qcclSum, comm,
                    NULL);
}

static qcclResult_t exscan(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    float send[most_values], *recv = job->results[rank];
    const int in_place = job->in_place && rank > 0;
    fill(in_place ? recv : send, rank, job->count);
    return qcclExscan(in_place ? recv : send, rank > 0 ? recv : NULL, job->count, qcclFloat32,
                      qcclSum, comm, NULL);
}

static qcclResult_t barrier(int rank, qcclComm_t comm, void *context)
{
    (void)rank;
    (void)context;
    return qcclBarrier(comm, NULL);
}

static float expected_sum(size_t i) { return input(0, i) + input(1, i) + input(2, i); }
static float expected_prefix(int ranks, size_t i)
{
    float sum = 0;
    int rank;
    for (rank = 0; rank < ranks; rank++) sum += input(rank, i);
    return sum;
}
static float expected_max(size_t i)
{
    float most = input(0, i);
    int rank;
    for (rank = 1; rank < size; rank++)
        if (input(rank, i) > most) most = input(rank, i);
    return most;
}

static void check_collectives(const world_t *world, size_t count, int in_place)
{
    job_t *job = new_job(count, in_place);
    outcome_t outcome;
    int rank, block;
    size_t i;

    outcome = on_every_rank(world, all_reduce, job);
    assert_all_succeed(&outcome, size);
    for (rank = 0; rank < size; rank++)
        for (i = 0; i < count; i++) assert_true(job->results[rank][i] == expected_sum(i));

    outcome = on_every_rank(world, reduce_scatter, job);
    assert_all_succeed(&outcome, size);
    for (rank = 0; rank < size; rank++)
        for (i = 0; i < count; i++)
            assert_true(job->results[rank][i + (in_place ? (size_t)rank * count : 0)] ==
                        expected_max((size_t)rank * count + i));

    outcome = on_every_rank(world, all_gather, job);
    assert_all_succeed(&outcome, size);
    for (rank = 0; rank < size; rank++)
        for (block = 0; block < size; block++)
            for (i = 0; i < count; i++)
                assert_true(job->results[rank][(size_t)block * count + i] == input(block, i));

    outcome = on_every_rank(world, broadcast, job);
    assert_all_succeed(&outcome, size);
    for (rank = 0; rank < size; rank++)
        for (i = 0; i < count; i++) assert_true(job->results[rank][i] == input(1, i));

    free(job);
}

static void check_others(const world_t *world, size_t count, int in_place)
{
    job_t *job = new_job(count, in_place);
    outcome_t outcome;
    int rank, block;
    size_t i;

    outcome = on_every_rank(world, reduce, job);
    assert_all_succeed(&outcome, size);
    for (i = 0; i < count; i++) assert_true(job->results[root][i] == expected_sum(i));

    outcome = on_every_rank(world, gather, job);
    assert_all_succeed(&outcome, size);
    for (block = 0; block < size; block++)
        for (i = 0; i < count; i++)
            assert_true(job->results[root][(size_t)block * count + i] == input(block, i));

    outcome = on_every_rank(world, scatter, job);
    assert_all_succeed(&outcome, size);
    for (rank = 0; rank < size; rank++)
        for (i = 0; i < count; i++)
            assert_true(job->results[rank][i + (in_place && rank == root ? root * count : 0)] ==
                        input(root, (size_t)rank * count + i));

    outcome = on_every_rank(world, all_to_all, job);
    assert_all_succeed(&outcome, size);
    for (rank = 0; rank < size; rank++)
        for (block = 0; block < size; block++)
            for (i = 0; i < count; i++)
                assert_true(job->results[rank][(size_t)block * count + i] ==
                            input(block, (size_t)rank * count + i));

    outcome = on_every_rank(world, scan, job);
    assert_all_succeed(&outcome, size);
    for (rank = 0; rank < size; rank++)
        for (i = 0; i < count; i++)
            assert_true(job->results[rank][i] == expected_prefix(rank + 1, i));

    outcome = on_every_rank(world, exscan, job);
    assert_all_succeed(&outcome, size);
    for (rank = 1; rank < size; rank++)
        for (i = 0; i < count; i++) assert_true(job->results[rank][i] == expected_prefix(rank, i));

    outcome = on_every_rank(world, barrier, NULL);
    assert_all_succeed(&outcome, size);
    free(job);
}

static void check_both(const world_t *world, size_t count, int in_place)
{
    check_collectives(world, count, in_place);
    check_others(world, count, in_place);
}

static void check_sizes(world_t world)
{
    static const size_t counts[] = {0, 1, 7, 64, 1001, most_values};
    size_t i;
    for (i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        check_both(&world, counts[i], 0);
        check_both(&world, counts[i], 1);
    }
    end_world(&world);
}

static void collectives_of_threads(void **state)
{
    (void)state;
    check_sizes(make_world(size));
}

static void collectives_of_strangers(void **state)
{
    (void)state;
    check_sizes(join_world(size, NULL));
}

static qcclResult_t nothing(int rank, qcclComm_t comm, void *context)
{
    qcclResult_t result = qcclAllReduce(NULL, NULL, 0, qcclFloat16, qcclAvg, comm, NULL);
    (void)rank;
    (void)context;
    if (result == qcclSuccess) result = qcclAllGather(NULL, NULL, 0, qcclInt8, comm, NULL);
    if (result == qcclSuccess) result = qcclBroadcast(NULL, NULL, 0, qcclInt8, 2, comm, NULL);
    if (result == qcclSuccess) result = qcclReduce(NULL, NULL, 0, qcclInt8, qcclSum, 2, comm, NULL);
    if (result == qcclSuccess) result = qcclGather(NULL, NULL, 0, qcclInt8, 2, comm, NULL);
    if (result == qcclSuccess) result = qcclScatter(NULL, NULL, 0, qcclInt8, 2, comm, NULL);
    if (result == qcclSuccess) result = qcclAllToAll(NULL, NULL, 0, qcclInt8, comm, NULL);
    if (result == qcclSuccess) result = qcclScan(NULL, NULL, 0, qcclInt8, qcclSum, comm, NULL);
    if (result == qcclSuccess) result = qcclExscan(NULL, NULL, 0, qcclInt8, qcclSum, comm, NULL);
    return result;
}

static void nothing_at_all_is_allowed(void **state)
{
    world_t world = make_world(size);
    const outcome_t outcome = on_every_rank(&world, nothing, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
    end_world(&world);
}

static void a_call_may_name_codec_and_algorithm(void **state)
{
    static const char *const algorithms[] = {"ring", "direct", "oneshot"};
    world_t world = make_world(size);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    size_t i;
    (void)state;
    assert_int_equal(qcclCodecCreate(&config.codec, "int4"), qcclSuccess);
    for (i = 0; i < 3; i++) {
        job_t *job = new_job(most_values, 1);
        outcome_t outcome;
        int rank;
        size_t at, wrong = 0;
        job->config = &config;
        config.algorithm = algorithms[i];
        outcome = on_every_rank(&world, all_reduce, job);
        assert_all_succeed(&outcome, size);
        for (rank = 1; rank < size; rank++)
            assert_memory_equal(job->results[0], job->results[rank], most_values * sizeof(float));
        for (at = 0; at < most_values; at++) wrong += job->results[0][at] != expected_sum(at);
        assert_true(wrong > 0); /* proves that the codec was used */
        free(job);
    }
    assert_int_equal(qcclCodecDestroy(config.codec), qcclSuccess);
    end_world(&world);
}

static void a_communicator_knows_itself(void **state)
{
    world_t world = make_world(size);
    int rank, count = 0, own = -1;
    qcclResult_t async = qcclInternalError;
    (void)state;
    for (rank = 0; rank < size; rank++) {
        assert_int_equal(qcclCommCount(world.comms[rank], &count), qcclSuccess);
        assert_int_equal(qcclCommUserRank(world.comms[rank], &own), qcclSuccess);
        assert_int_equal(count, size);
        assert_int_equal(own, rank);
        assert_int_equal(qcclCommGetAsyncError(world.comms[rank], &async), qcclSuccess);
        assert_int_equal(async, qcclSuccess);
        assert_int_equal(qcclCommFinalize(world.comms[rank]), qcclSuccess);
        assert_string_equal(qcclGetLastError(world.comms[rank]), "");
    }
    assert_works(&world);
    end_world(&world);
}

static void statistics_count_what_was_done(void **state)
{
    world_t world = make_world(size);
    job_t *job = new_job(most_values, 0);
    const outcome_t outcome = on_every_rank(&world, all_reduce, job);
    struct {
        qcclCommStats_t stats;
        uint64_t more[2];
    } newer;
    (void)state;
    assert_all_succeed(&outcome, size);
    memset(&newer, 0xAA, sizeof newer);
    newer.stats.size = sizeof newer;
    assert_int_equal(qcclCommGetStats(world.comms[1], &newer.stats), qcclSuccess);
    assert_int_equal(newer.stats.size, sizeof newer);
    assert_int_equal(newer.stats.calls, 1);
    assert_int_equal(newer.stats.raw_bytes, most_values * sizeof(float));
    assert_true(newer.stats.wire_bytes > 0);
    assert_int_equal(newer.more[1], 0); /* fields that this library does not know are zero */
    free(job);
    end_world(&world);
}

static void explanations_fit_what_they_ask_for(void **state)
{
    world_t world = make_world(size);
    static const char what[] = "all_reduce bytes=64M type=float codec=int4";
    size_t bytes = 0, again;
    char *text, json[16384];
    (void)state;
    again = sizeof json;
    assert_int_equal(qcclExplain(world.comms[0], "barrier format=json", json, &again), qcclSuccess);
    assert_int_equal(strncmp(json, "{\"version\":1,\"collective\":\"barrier\"", 35), 0);
    assert_says(json, "\"bytes_by_link\":{\"shared_memory\":");
    assert_int_equal(qcclExplain(world.comms[0], what, NULL, &bytes), qcclSuccess);
    again = bytes;
    text = malloc(bytes);
    assert_non_null(text);
    assert_int_equal(qcclExplain(world.comms[0], what, text, &again), qcclSuccess);
    assert_int_equal(again, bytes);
    assert_int_equal(strlen(text) + 1, bytes);
    assert_says(text, "all_reduce of 16777216 float");
    assert_says(text, "on 3 ranks with int4");
    assert_says(text, "ring");
    assert_says(text, "direct");
    free(text);
    end_world(&world);
}

static void explanations_say_why_a_codec_is_passed_over(void **state)
{
    static const char reason[] = "codec int8 of QCCL_CODEC: reaches sum and avg of floating "
                                 "point, not max of float; such calls go lossless\n";
    char sum[4096], max[4096];
    size_t sum_bytes = sizeof sum, max_bytes = sizeof max;
    world_t world;
    (void)state;
    setenv("QCCL_CODEC", "int8", 1);
    world = make_world(size);
    unsetenv("QCCL_CODEC");
    assert_int_equal(qcclExplain(world.comms[0], "all_reduce count=99 op=sum", sum, &sum_bytes),
                     qcclSuccess);
    assert_int_equal(qcclExplain(world.comms[0], "all_reduce count=99 op=max", max, &max_bytes),
                     qcclSuccess);
    assert_null(strstr(sum, "such calls go lossless"));
    assert_int_equal(strncmp(sum, "codec int8 by QCCL_CODEC\nover ", 30), 0);
    assert_int_equal(strncmp(max, reason, sizeof reason - 1), 0);
    assert_says(max + sizeof reason - 1, "all_reduce of 99 float");
    assert_int_equal(strlen(max) + 1, max_bytes);
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_of_threads),
        cmocka_unit_test(collectives_of_strangers),
        cmocka_unit_test(nothing_at_all_is_allowed),
        cmocka_unit_test(a_call_may_name_codec_and_algorithm),
        cmocka_unit_test(a_communicator_knows_itself),
        cmocka_unit_test(statistics_count_what_was_done),
        cmocka_unit_test(explanations_fit_what_they_ask_for),
        cmocka_unit_test(explanations_say_why_a_codec_is_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
