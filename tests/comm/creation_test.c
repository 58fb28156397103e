/* Tests the creation of communicators: the settings of the config and of the
 * environment take effect, and warnings and info lines are logged.
 * creation_refusal_test.c tests what is refused. */
#include "tests/api/api_kit.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { size = 2, most_lines = 64 };

/* The log lines of all ranks. */
typedef struct {
    pthread_mutex_t mutex;
    int count;
    char text[most_lines][512];
    int32_t level[most_lines];
} lines_t;

static void keep(int32_t level, const char *line, void *context)
{
    lines_t *lines = context;
    pthread_mutex_lock(&lines->mutex);
    if (lines->count < most_lines) {
        snprintf(lines->text[lines->count], sizeof lines->text[0], "%s", line);
        lines->level[lines->count++] = level;
    }
    pthread_mutex_unlock(&lines->mutex);
}

static int lines_with(const lines_t *lines, const char *part)
{
    int i, found = 0;
    for (i = 0; i < lines->count; i++) found += strstr(lines->text[i], part) != NULL;
    return found;
}

static void make_configs(qcclConfig_t configs[size], lines_t *lines)
{
    int rank;
    memset(lines, 0, sizeof *lines);
    pthread_mutex_init(&lines->mutex, NULL);
    for (rank = 0; rank < size; rank++) {
        configs[rank] = (qcclConfig_t)QCCL_CONFIG_INIT;
        configs[rank].log.function = keep;
        configs[rank].log.context = lines;
    }
}

enum { count = 4096 };

typedef struct {
    qcclDataType_t type;
    qcclRedOp_t op;
    float results[most_ranks][count];
} job_t;

static qcclResult_t reduce(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    int i;
    for (i = 0; i < count; i++) job->results[rank][i] = (float)(i % 301) / 7 + (float)rank;
    return qcclAllReduce(job->results[rank], job->results[rank], count, job->type, job->op, comm,
                         NULL);
}

static qcclResult_t gather(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    int i;
    for (i = 0; i < count / 2; i++)
        job->results[rank][rank * (count / 2) + i] = (float)(i % 301) / 7 + (float)rank;
    return qcclAllGather(job->results[rank] + rank * (count / 2), job->results[rank], count / 2,
                         qcclFloat32, comm, NULL);
}

/* Returns how many values differ from the result of a lossless call. */
static int lossy_values(const world_t *world, body_t body, qcclRedOp_t op)
{
    static job_t job;
    outcome_t outcome;
    int i, wrong = 0;
    job.type = qcclFloat32;
    job.op = op;
    outcome = on_every_rank(world, body, &job);
    assert_all_succeed(&outcome, size);
    assert_memory_equal(job.results[0], job.results[1], sizeof job.results[0]);
    for (i = 0; i < count; i++) {
        const float x = (float)(i % 301) / 7, y = x + 1;
        const float half = (float)(i % (count / 2) % 301) / 7 + (float)(i / (count / 2));
        const float expected = body == gather ? half : op == qcclMax ? y : x + y;
        wrong += job.results[0][i] != expected;
    }
    return wrong;
}

static void the_communicator_s_codec_reaches_reductions(void **state)
{
    qcclConfig_t configs[size];
    lines_t lines;
    world_t world;
    (void)state;
    setenv("QCCL_DEBUG", "info", 1);
    make_configs(configs, &lines);
    configs[0].codec = configs[1].codec = "int4";
    configs[0].name = configs[1].name = "gradients";
    world = join_world(size, configs);
    assert_int_equal(lines_with(&lines, "gradients: rank 0 of 2 over shm"), 1);
    assert_true(lossy_values(&world, reduce, qcclSum) > 0);
    assert_true(lossy_values(&world, reduce, qcclSum) > 0);
    assert_int_equal(lines_with(&lines, "first lossy call of this communicator: codec int4"), 1);
    assert_int_equal(lossy_values(&world, gather, qcclSum), 0);
    assert_int_equal(lossy_values(&world, reduce, qcclMax), 0);
    assert_int_equal(lossy_values(&world, reduce, qcclMax), 0);
    assert_int_equal(lines_with(&lines, "such calls go lossless"), 1);
    end_world(&world);
    unsetenv("QCCL_DEBUG");
}

static void the_environment_s_codec_reaches_sums(void **state)
{
    qcclConfig_t configs[size];
    lines_t lines;
    world_t world;
    (void)state;
    setenv("QCCL_CODEC", "bf16", 1);
    world = make_world(size);
    assert_true(lossy_values(&world, reduce, qcclSum) > 0);
    assert_int_equal(lossy_values(&world, reduce, qcclMax), 0);
    assert_int_equal(lossy_values(&world, gather, qcclSum), 0);
    end_world(&world);

    /* An explicit "none" in the config overrides the environment. */
    make_configs(configs, &lines);
    configs[0].codec = configs[1].codec = "none";
    world = join_world(size, configs);
    assert_int_equal(lossy_values(&world, reduce, qcclSum), 0);
    end_world(&world);

    /* The setting may exclude small calls. */
    setenv("QCCL_CODEC", "bf16:min=16385", 1);
    world = make_world(size);
    assert_int_equal(lossy_values(&world, reduce, qcclSum), 0);
    end_world(&world);
    unsetenv("QCCL_CODEC");
}

typedef struct {
    qcclUniqueId id;
    qcclComm_t comms[size];
} starving_t;

static qcclResult_t starve(int rank, qcclComm_t comm, void *context)
{
    starving_t *starving = context;
    (void)comm;
    return qcclCommInitRank(&starving->comms[rank], size, &starving->id, rank);
}

static void too_little_memory_is_told(void **state)
{
    world_t nobody;
    starving_t starving;
    outcome_t outcome;
    int rank;
    (void)state;
    memset(&nobody, 0, sizeof nobody);
    memset(&starving, 0, sizeof starving);
    nobody.size = size;
    setenv("QCCL_ARENA", "262144G", 1); /* the whole address space */
    assert_int_equal(qcclCommInitAll(starving.comms, size, NULL), qcclSystemError);
    assert_says(qcclGetLastError(NULL), "Cannot allocate memory");
    assert_int_equal(qcclGetUniqueId(&starving.id), qcclSuccess);
    outcome = on_every_rank(&nobody, starve, &starving);
    unsetenv("QCCL_ARENA");
    for (rank = 0; rank < size; rank++) {
        assert_true(outcome.result[rank] == qcclSystemError ||
                    outcome.result[rank] == qcclRemoteError);
        assert_says(outcome.sentence[rank], "MiB of shared memory for each of");
        assert_null(starving.comms[rank]);
    }
}

static void unknown_settings_are_warned_about(void **state)
{
    qcclConfig_t configs[size];
    lines_t lines;
    world_t world;
    (void)state;
    setenv("QCCL_CODAC", "int8", 1);
    make_configs(configs, &lines);
    world = join_world(size, configs);
    unsetenv("QCCL_CODAC");
    assert_int_equal(lines.count, 1);
    assert_int_equal(lines_with(&lines, ":0 qccl warn: QCCL_CODAC is not a setting of QCCL; did "
                                        "you mean QCCL_CODEC?"),
                     1);
    assert_int_equal(lines.level[0], 1);
    end_world(&world);
}

static void faults_that_cannot_happen_are_warned_about(void **state)
{
    qcclConfig_t configs[size];
    lines_t lines;
    world_t world;
    (void)state;
    setenv("QCCL_INJECT", "rank=2,kill;rank=1,call=2,delay=10ms;call=0,revoke", 1);
    setenv("QCCL_DEBUG", "info", 1);
    make_configs(configs, &lines);
    world = join_world(size, configs);
    unsetenv("QCCL_INJECT");
    unsetenv("QCCL_DEBUG");
    assert_int_equal(lines_with(&lines, "qccl warn: "), 2);
    assert_int_equal(lines_with(&lines,
                                ":0 qccl warn: QCCL_INJECT: \"rank=2,kill\" does nothing: the "
                                "ranks are 0 to 1"),
                     1);
    assert_int_equal(lines_with(&lines, "\"call=0,revoke\" does nothing: calls count from 1"), 1);
    assert_works(&world);
    assert_works(&world);
    assert_int_equal(lines_with(&lines,
                                ":1 qccl info: QCCL_INJECT: \"rank=1,call=2,delay=10ms\" hits "
                                "rank 1 before its call 2"),
                     1);
    assert_int_equal(lines_with(&lines, " hits "), 1);
    end_world(&world);
}

static void settings_reach_the_engine(void **state)
{
    static const char *const settings[][2] = {
        {"QCCL_CHECKSUM", "1"}, {"QCCL_TIER", "scalar"}, {"QCCL_SEGMENT", "4K"},
        {"QCCL_LANES", "2"},    {"QCCL_ARENA", "1M"},    {"QCCL_ONESHOT_MAX", "0"},
        {"QCCL_ALGO", "ring"},  {"QCCL_SPIN", "0"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        world_t world;
        setenv(settings[i][0], settings[i][1], 1);
        world = make_world(size);
        assert_int_equal(lossy_values(&world, reduce, qcclSum), 0);
        assert_works(&world);
        end_world(&world);
        unsetenv(settings[i][0]);
    }
}

static qcclResult_t wait_for_all(int rank, qcclComm_t comm, void *context)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    (void)rank;
    (void)context;
    config.tag = 77;
    return qcclBarrierConfig(comm, NULL, &config);
}

static void calls_are_traced(void **state)
{
    static const char *const levels[] = {"info", "trace"};
    int i;
    (void)state;
    for (i = 0; i < 2; i++) {
        const int expected = i == 0 ? 0 : size;
        qcclConfig_t configs[size];
        outcome_t outcome;
        lines_t lines;
        world_t world;
        setenv("QCCL_DEBUG", levels[i], 1);
        make_configs(configs, &lines);
        configs[0].codec = configs[1].codec = "int4";
        configs[0].algorithm = configs[1].algorithm = "ring";
        configs[0].name = configs[1].name = "gradients";
        world = join_world(size, configs);
        assert_true(lossy_values(&world, reduce, qcclSum) > 0);
        outcome = on_every_rank(&world, wait_for_all, NULL);
        assert_all_succeed(&outcome, size);
        unsetenv("QCCL_DEBUG");
        assert_int_equal(lines_with(&lines, "qccl trace: "), 4 * expected);
        assert_int_equal(
            lines_with(&lines, "gradients: call 1: all_reduce, count 4096, type float, op sum, "
                               "codec int4, algorithm ring, tag 0, "),
            expected);
        assert_int_equal(lines_with(&lines, " us: success"), 2 * expected);
        assert_int_equal(
            lines_with(&lines,
                       "gradients: call 2: barrier, count 0, type none, op none, codec none, "),
            expected);
        assert_int_equal(lines_with(&lines, ", tag 77"), expected);
        end_world(&world);
    }
}

/* Infinite timeouts are shortened to the longest time that clocks can count. */
static void timeouts_may_be_infinite(void **state)
{
    static const double times[] = {INFINITY, 1e300};
    size_t i;
    (void)state;
    for (i = 0; i < sizeof times / sizeof *times; i++) {
        qcclConfig_t configs[size] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
        waiter_t waiter;
        world_t world;
        int rank;
        for (rank = 0; rank < size; rank++)
            configs[rank].timeout = configs[rank].peer_timeout = times[i];
        world = join_world(size, configs);
        start_waiter(&waiter, world.comms[1]);
        sleep_ms(100);
        assert_int_equal(qcclBarrier(world.comms[0], NULL), qcclSuccess);
        check_waiter(&waiter, qcclSuccess, "");
        assert_works(&world);
        end_world(&world);
    }
}

static void faults_can_be_injected(void **state)
{
    world_t world;
    double begin;
    (void)state;
    setenv("QCCL_INJECT", "rank=1,call=2,delay=300ms;rank=0,call=4,revoke", 1);
    world = make_world(size);
    unsetenv("QCCL_INJECT");
    assert_works(&world);
    begin = now_s();
    assert_works(&world);
    assert_true(now_s() - begin >= 0.3);
    begin = now_s();
    assert_works(&world);
    {
        float value = 1;
        assert_int_equal(
            qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, world.comms[0], NULL),
            qcclRevoked);
        assert_says(qcclGetLastError(NULL), "rank 0 revoked the communicator (QCCL_INJECT)");
        assert_int_equal(qcclBarrier(world.comms[1], NULL), qcclRevoked);
    }
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_communicator_s_codec_reaches_reductions),
        cmocka_unit_test(the_environment_s_codec_reaches_sums),
        cmocka_unit_test(too_little_memory_is_told),
        cmocka_unit_test(unknown_settings_are_warned_about),
        cmocka_unit_test(faults_that_cannot_happen_are_warned_about),
        cmocka_unit_test(settings_reach_the_engine),
        cmocka_unit_test(calls_are_traced),
        cmocka_unit_test(timeouts_may_be_infinite),
        cmocka_unit_test(faults_can_be_injected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
