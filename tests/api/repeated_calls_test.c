/* Tests the cache for repeated calls: a call with the same arguments takes a shorter path and gives
 * the same result as the first time. */
#include "api_kit.h"

#include <stdlib.h>
#include <string.h>

enum { size = 3, most_values = 5000 };

typedef struct {
    const qcclCollConfig_t *config;
    float results[size][most_values];
} job_t;

static qcclResult_t all_reduce(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    float send[most_values];
    size_t i;
    for (i = 0; i < most_values; i++) send[i] = (float)((rank + 1) * (int)(i % 97) - 40);
    return qcclAllReduceConfig(send, job->results[rank], most_values, qcclFloat32, qcclSum, comm,
                               NULL, job->config);
}

/* The cache distinguishes configs: each repeats its first result, although calls of the same count
 * with other configs come in between. */
static void repeated_calls_follow_their_configs(void **state)
{
    static const char *const codecs[] = {NULL, "int8:min=0", "int4:min=0"};
    static const char *const algorithms[] = {NULL, "ring", "oneshot"};
    enum { kinds = 9 };
    world_t world = make_world(size);
    job_t *first[kinds];
    int round, kind, other;
    (void)state;
    for (round = 0; round < 3; round++)
        for (kind = 0; kind < kinds; kind++) {
            qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
            job_t *job = calloc(1, sizeof *job);
            outcome_t outcome;
            assert_non_null(job);
            if (codecs[kind / 3])
                assert_int_equal(qcclCodecCreate(&config.codec, codecs[kind / 3]), qcclSuccess);
            config.algorithm = algorithms[kind % 3];
            config.tag = (uint64_t)round;
            job->config = &config;
            outcome = on_every_rank(&world, all_reduce, job);
            assert_all_succeed(&outcome, size);
            if (config.codec) assert_int_equal(qcclCodecDestroy(config.codec), qcclSuccess);
            if (round == 0) {
                first[kind] = job;
                continue;
            }
            assert_memory_equal(job->results, first[kind]->results, sizeof job->results);
            free(job);
        }
    for (kind = 0; kind < kinds; kind++)
        for (other = kind + 1; other < kinds; other++)
            if (kind / 3 != other / 3)
                assert_memory_not_equal(first[kind]->results[0], first[other]->results[0],
                                        most_values * sizeof(float));
    for (kind = 0; kind < kinds; kind++) free(first[kind]);
    end_world(&world);
}

/* Many shapes take turns, so each call finds its own entry among many. */
static qcclResult_t many_shapes(int rank, qcclComm_t comm, void *context)
{
    int round, n, i;
    (void)context;
    for (round = 0; round < 3; round++)
        for (n = 1; n < 60; n++) {
            int32_t values[64];
            const qcclRedOp_t op = (n + round) % 2 ? qcclSum : qcclMax;
            const int root = n % size;
            qcclResult_t result;
            for (i = 0; i < n; i++) values[i] = rank + i;
            result = qcclAllReduce(values, values, (size_t)n, qcclInt32, op, comm, NULL);
            if (result != qcclSuccess) return result;
            for (i = 0; i < n; i++)
                if (values[i] != (op == qcclMax ? size - 1 + i : 3 + size * i))
                    return qcclInternalError;
            values[0] = rank;
            result = qcclBroadcast(values, values, 1, qcclInt32, root, comm, NULL);
            if (result != qcclSuccess || values[0] != root) return qcclInternalError;
        }
    return qcclSuccess;
}

/* Uses more shapes than a communicator caches, twice. */
static qcclResult_t ever_new_shapes(int rank, qcclComm_t comm, void *context)
{
    static const size_t shapes = 400;
    size_t call, i;
    (void)context;
    for (call = 0; call < 2 * shapes; call++) {
        const size_t n = call % shapes + 1;
        int32_t values[400];
        qcclResult_t result;
        for (i = 0; i < n; i++) values[i] = rank + (int32_t)i;
        result = qcclAllReduce(values, values, n, qcclInt32, qcclSum, comm, NULL);
        if (result != qcclSuccess) return result;
        for (i = 0; i < n; i++)
            if (values[i] != 3 + size * (int32_t)i) return qcclInternalError;
    }
    return qcclSuccess;
}

static void succeed(qcclResult_t (*calls)(int, qcclComm_t, void *))
{
    world_t world = make_world(size);
    const outcome_t outcome = on_every_rank(&world, calls, NULL);
    assert_all_succeed(&outcome, size);
    end_world(&world);
}

static void shapes_may_be_forgotten(void **state)
{
    (void)state;
    succeed(ever_new_shapes);
}

static void repeated_calls_are_not_mixed_up(void **state)
{
    (void)state;
    succeed(many_shapes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeated_calls_follow_their_configs),
        cmocka_unit_test(repeated_calls_are_not_mixed_up),
        cmocka_unit_test(shapes_may_be_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
