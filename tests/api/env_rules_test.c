/* Tests QCCL_CODEC and QCCL_ALGO with items, and QCCL_PLAN_FILE: which rule
 * decides a call, what qcclExplain says, what is refused, and that an item that
 * decides no call is reported once. */
#include "api_kit.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { size = 2, most_count = 8192 };

/* The log of all ranks. */
typedef struct {
    pthread_mutex_t mutex;
    char text[8192];
} lines_t;

static void keep(int32_t level, const char *line, void *context)
{
    lines_t *lines = context;
    (void)level;
    pthread_mutex_lock(&lines->mutex);
    strncat(lines->text, line, sizeof lines->text - strlen(lines->text) - 2);
    strcat(lines->text, "\n");
    pthread_mutex_unlock(&lines->mutex);
}

static int lines_with(const lines_t *lines, const char *part)
{
    const char *at = lines->text;
    int found = 0;
    while ((at = strstr(at, part)) != NULL) {
        found++;
        at++;
    }
    return found;
}

static lines_t lines = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static world_t make_named(const char *name)
{
    qcclConfig_t configs[size];
    int rank;
    for (rank = 0; rank < size; rank++) {
        configs[rank] = (qcclConfig_t)QCCL_CONFIG_INIT;
        configs[rank].name = name;
        configs[rank].log.function = keep;
        configs[rank].log.context = &lines;
    }
    return join_world(size, configs);
}

typedef struct {
    size_t count;
    float values[size][most_count];
} sum_t;

static qcclResult_t sum_up(int rank, qcclComm_t comm, void *context)
{
    sum_t *sum = context;
    float *const values = sum->values[rank];
    size_t i;
    for (i = 0; i < sum->count; i++) values[i] = (float)(i % 301) / 7 + (float)rank;
    return qcclAllReduce(values, values, sum->count, qcclFloat32, qcclSum, comm, NULL);
}

/* Whether the sum of `count` floats equals the result of a lossless call. */
static bool is_lossless(const world_t *world, size_t count)
{
    static sum_t sum;
    outcome_t outcome;
    bool is_exact = true;
    size_t i;
    sum.count = count;
    outcome = on_every_rank(world, sum_up, &sum);
    assert_all_succeed(&outcome, size);
    for (i = 0; i < count; i++) {
        const float x = (float)(i % 301) / 7;
        is_exact = is_exact && sum.values[0][i] == x + (x + 1);
    }
    return is_exact;
}

static char *explained(const world_t *world, const char *what)
{
    static char text[8192];
    size_t bytes = sizeof text;
    if (qcclExplain(world->comms[0], what, text, &bytes) != qcclSuccess)
        fail_msg("%s", qcclGetLastError(world->comms[0]));
    return text;
}

static void items_decide_by_communicator_and_size(void **state)
{
    world_t dp, tp;
    (void)state;
    setenv("QCCL_CODEC", "int4@comm=dp*,bytes>=16K;none@comm=dp*;int8@nodes=1,ranks<=2", 1);
    setenv("QCCL_ALGO", "ring@comm=dp0,bytes>=16K;auto@bytes<16K;tree", 1);
    dp = make_named("dp0");
    tp = make_named("tp");
    unsetenv("QCCL_CODEC");
    unsetenv("QCCL_ALGO");
    assert_false(is_lossless(&dp, 4096));
    assert_true(is_lossless(&dp, 4095));
    assert_false(is_lossless(&tp, 4095));
    assert_int_equal(strncmp(explained(&dp, "all_reduce bytes=16K"),
                             "codec int4 by item 1 of QCCL_CODEC, \"int4@comm=dp*,bytes>=16K\"\n"
                             "algorithm ring by item 1 of QCCL_ALGO, \"ring@comm=dp0,bytes>=16K\"\n"
                             "over shm\n",
                             120),
                     0);
    assert_says(explained(&dp, "all_reduce bytes=1K"),
                "codec none by item 2 of QCCL_CODEC, \"none@comm=dp*\"\n"
                "algorithm auto by item 2 of QCCL_ALGO, \"auto@bytes<16K\"\n");
    assert_says(explained(&tp, "all_reduce bytes=16K"),
                "codec int8 by item 3 of QCCL_CODEC, \"int8@nodes=1,ranks<=2\"\n"
                "algorithm tree by item 3 of QCCL_ALGO, \"tree\"\n");
    /* A v-form has the rules of its collective, and only algorithms that have the form. */
    assert_says(explained(&dp, "all_to_all_v bytes=8"), "all_to_all_v of 1048576 float");
    assert_null(strstr(explained(&dp, "all_to_all_v"), "bruck"));
    assert_says(explained(&dp, "all_to_all_v algorithm=pairwise"), "pairwise");
    /* A codec or algorithm that the query itself names comes from no item. */
    assert_null(strstr(explained(&dp, "all_reduce bytes=16K codec=int2 algorithm=direct"), " by "
                                                                                           "item"));
    end_world(&dp);
    end_world(&tp);
}

/* An item that has decided no call of any communicator is reported once, when
 * the last communicator of the process ends. */
static void items_that_decide_nothing_are_told(void **state)
{
    static const char sentence[] = "QCCL_CODEC: item 2, \"int8@comm=pp*\", has decided no call of "
                                   "this process";
    world_t dp, tp;
    (void)state;
    setenv("QCCL_CODEC", "int4@comm=dp*;int8@comm=pp*;none", 1);
    dp = make_named("dp");
    tp = make_named("tp");
    is_lossless(&dp, 10);
    is_lossless(&tp, 10);
    lines.text[0] = '\0';
    end_world(&dp);
    assert_string_equal(lines.text, "");
    end_world(&tp);
    assert_int_equal(lines_with(&lines, sentence), 1);
    assert_int_equal(lines_with(&lines, "\n"), 1);

    /* In a program that makes no calls, no item is reported. */
    lines.text[0] = '\0';
    dp = make_named("dp");
    end_world(&dp);
    unsetenv("QCCL_CODEC");
    assert_string_equal(lines.text, "");
}

static void items_that_cannot_be_are_refused(void **state)
{
    static const struct {
        const char *name, *value, *says;
    } cases[] = {
        {"QCCL_CODEC", "int8@bytes>=1M;int9@bytes<1K", "QCCL_CODEC: item 2: codec is \"int9\"; "},
        {"QCCL_CODEC", "int8@byts>=1M", "QCCL_CODEC: condition is \"byts\"; possible are comm, "},
        {"QCCL_CODEC", "int8@bytes<0", "can match no call: there is no such number of bytes"},
        {"QCCL_CODEC", "int8@op=max", "it reaches sum and avg of floating point"},
        {"QCCL_ALGO", "rang@ranks=2;auto", "QCCL_ALGO: item 1 is \"rang\"; possible are direct"},
        {"QCCL_ALGO", "ring@ranks>65536", "can match no call: a job has 1 to 65536 ranks"},
        {"QCCL_ALGO", "ring@tag=7", "tag cannot be a condition"},
        {"QCCL_PLAN_FILE", "/nowhere/plan", "/nowhere/plan: it cannot be read: No such file"},
        {"QCCL_PLAN_FILE", "/tmp", "QCCL_PLAN_FILE: /tmp: it is a directory, not a file"},
        {"QCCL_PLAN_FILE", "/dev/zero", "QCCL_PLAN_FILE: /dev/zero: it is no regular file"},
        {"QCCL_PLAN_FILE", "/proc/self/exe", "it is no plan file: it begins with \"?ELF"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        qcclComm_t comms[size] = {NULL, NULL};
        setenv(cases[i].name, cases[i].value, 1);
        if (qcclCommInitAll(comms, size, NULL) == qcclSuccess)
            fail_msg("%s=%s was accepted", cases[i].name, cases[i].value);
        assert_says(qcclGetLastError(NULL), cases[i].says);
        unsetenv(cases[i].name);
    }
}

/* Such items would let results depend on where the ranks are. */
static void reproducible_communicators_refuse_conditions_on_nodes(void **state)
{
    qcclComm_t comms[size] = {NULL, NULL};
    (void)state;
    setenv("QCCL_REPRODUCIBLE", "1", 1);
    setenv("QCCL_CODEC", "int8@ranks=2;int4@nodes>1", 1);
    assert_int_equal(qcclCommInitAll(comms, size, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "item 2 of QCCL_CODEC, \"int4@nodes>1\": the number of "
                                        "nodes depends on where the ranks are");
    setenv("QCCL_CODEC", "int8@ranks=2", 1);
    setenv("QCCL_ALGO", "hierarchy@ranks>2", 1);
    assert_int_equal(qcclCommInitAll(comms, size, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL),
                "item 1 of QCCL_ALGO, \"hierarchy@ranks>2\": hierarchy sums");
    unsetenv("QCCL_ALGO");
    unsetenv("QCCL_CODEC");
    unsetenv("QCCL_REPRODUCIBLE");
}

static char plan_path[] = "/tmp/qccl-plan-XXXXXX";

static void write_plan(const char *text)
{
    FILE *const file = fopen(plan_path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void a_plan_file_decides_what_nobody_else_does(void **state)
{
    world_t world;
    (void)state;
    write_plan("qccl-plan version=1 rules=2\njob ranks=2 nodes=1\n"
               "codec=int4 algorithm=ring parts=3 @count=4096,type=float32,collective=all_reduce\n"
               "codec=none @count=1000000\n");
    setenv("QCCL_PLAN_FILE", plan_path, 1);
    lines.text[0] = '\0';
    world = make_named("planned");
    assert_false(is_lossless(&world, 4096));
    assert_true(is_lossless(&world, 4097));
    assert_says(explained(&world, "all_reduce count=4096"),
                "codec int4 by line 3 of QCCL_PLAN_FILE, \"codec=int4 algorithm=ring");
    assert_says(explained(&world, "all_reduce count=4096"), "\nalgorithm ring by line 3 of ");
    assert_says(explained(&world, "all_reduce count=4096"), "\ncut by line 3 of QCCL_PLAN_FILE");
    assert_says(explained(&world, "all_reduce count=4096"), "; 3 segments in 3 lanes; NMSE");
    assert_says(explained(&world, "all_reduce count=4097"), "; 1 segment in 1 lane");
    end_world(&world);
    assert_int_equal(lines_with(&lines, "QCCL_PLAN_FILE: line 4, \"codec=none @count=1000000\", "
                                        "has decided no call of this process"),
                     1);

    /* Settings take precedence over the plan file, the value none included. */
    setenv("QCCL_CODEC", "none", 1);
    world = make_named("planned");
    unsetenv("QCCL_CODEC");
    assert_true(is_lossless(&world, 4096));
    end_world(&world);
    unsetenv("QCCL_PLAN_FILE");
}

typedef struct {
    qcclComm_t made[size];
} apart_t;

static qcclResult_t part(int rank, qcclComm_t comm, void *context)
{
    apart_t *apart = context;
    return qcclCommSplit(comm, rank, 0, &apart->made[rank], NULL);
}

static void a_plan_of_another_job_is_refused(void **state)
{
    qcclComm_t comms[size] = {NULL, NULL};
    apart_t apart;
    outcome_t outcome;
    world_t world;
    int rank;
    (void)state;
    write_plan("qccl-plan version=1\njob ranks=3\ncodec=int4\n");
    setenv("QCCL_PLAN_FILE", plan_path, 1);
    assert_int_equal(qcclCommInitAll(comms, size, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "it is the plan of another job: of 3 ranks, and this "
                                        "communicator has 2 ranks on 1 node");

    /* A communicator that is split off does not use the plan, and logs that. */
    write_plan("qccl-plan version=1\njob ranks=2\ncodec=int4\n");
    setenv("QCCL_DEBUG", "info", 1);
    world = make_named("whole");
    lines.text[0] = '\0';
    outcome = on_every_rank(&world, part, &apart);
    assert_all_succeed(&outcome, size);
    assert_int_equal(lines_with(&lines, "is not used: it is the plan of another job"), size);
    assert_false(is_lossless(&world, 4096));
    for (rank = 0; rank < size; rank++) {
        char text[4096];
        size_t bytes = sizeof text;
        assert_int_equal(qcclExplain(apart.made[rank], "all_reduce bytes=1M", text, &bytes),
                         qcclSuccess);
        assert_null(strstr(text, "QCCL_PLAN_FILE"));
        assert_int_equal(qcclCommDestroy(apart.made[rank]), qcclSuccess);
    }
    end_world(&world);
    unsetenv("QCCL_DEBUG");
    unsetenv("QCCL_PLAN_FILE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_decide_by_communicator_and_size),
        cmocka_unit_test(items_that_decide_nothing_are_told),
        cmocka_unit_test(items_that_cannot_be_are_refused),
        cmocka_unit_test(reproducible_communicators_refuse_conditions_on_nodes),
        cmocka_unit_test(a_plan_file_decides_what_nobody_else_does),
        cmocka_unit_test(a_plan_of_another_job_is_refused),
    };
    const int descriptor = mkstemp(plan_path);
    int failed;
    if (descriptor < 0) return 1;
    close(descriptor);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(plan_path);
    return failed;
}
