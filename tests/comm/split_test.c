/* Tests qcclCommSplit over threads and over processes: which ranks end up together and in which
 * order, and that a failure of one group does not affect another. */
#include "tests/api/process_kit.h"
#include "tests/kit/sanitizer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { threads = 5, nowhere = QCCL_SPLIT_NOCOLOR };

typedef struct {
    int color[threads], key[threads];
    int rank[threads], count[threads]; /* expected; rank -1: NULL */
    qcclComm_t made[threads];
} plan_t;

/* The sum shows which of the parent's ranks take part. */
static qcclResult_t sum_of(qcclComm_t comm, int mine, int *sum)
{
    *sum = mine;
    return qcclAllReduce(sum, sum, 1, qcclInt32, qcclSum, comm, NULL);
}

static qcclResult_t split_as_planned(int rank, qcclComm_t comm, void *context)
{
    plan_t *plan = context;
    qcclComm_t made = (qcclComm_t)context;
    int found = -1, ranks = -1, sum, expected = 0, other;
    qcclResult_t result;
    result = qcclCommSplit(comm, plan->color[rank], plan->key[rank], &made, NULL);
    if (result != qcclSuccess) return result;
    plan->made[rank] = made;
    if (plan->rank[rank] < 0) return made ? qcclInternalError : qcclSuccess;
    if (qcclCommUserRank(made, &found) != qcclSuccess || found != plan->rank[rank] ||
        qcclCommCount(made, &ranks) != qcclSuccess || ranks != plan->count[rank])
        return qcclInternalError;
    for (other = 0; other < threads; other++)
        if (plan->color[other] == plan->color[rank]) expected += 1 << other;
    result = sum_of(made, 1 << rank, &sum);
    if (result == qcclSuccess && sum != expected) return qcclInternalError;
    return result;
}

static void check_plan(const world_t *world, plan_t *plan)
{
    const outcome_t outcome = on_every_rank(world, split_as_planned, plan);
    assert_all_succeed(&outcome, world->size);
}

static void end_plan(plan_t *plan)
{
    int rank;
    for (rank = 0; rank < threads; rank++) {
        assert_int_equal(qcclCommDestroy(plan->made[rank]), qcclSuccess);
        plan->made[rank] = NULL;
    }
}

static void by_color_and_key(void **state)
{
    int kind;
    (void)state;
    for (kind = 0; kind < 2; kind++) {
        world_t world = kind ? make_world(threads) : join_world(threads, NULL);
        plan_t two = {.color = {7, 0, 7, 0, 7},
                      .key = {3, 0, -5, 0, 3},
                      .rank = {1, 0, 0, 1, 2},
                      .count = {3, 2, 3, 2, 3}};
        plan_t lonely = {.color = {1, nowhere, 2, nowhere, 1},
                         .key = {1, 2, 3, 4, 0},
                         .rank = {1, -1, 0, -1, 0},
                         .count = {2, 0, 1, 0, 2}};
        plan_t nobody = {.color = {nowhere, nowhere, nowhere, nowhere, nowhere},
                         .rank = {-1, -1, -1, -1, -1}};
        check_plan(&world, &two);
        check_plan(&world, &lonely);
        check_plan(&world, &nobody);
        assert_works(&world);
        end_plan(&two);
        end_plan(&lonely);
        end_world(&world);
    }
}

/* All ranks of threads are on one host. */
static void by_host(void **state)
{
    world_t world = join_world(threads, NULL);
    plan_t all = {.color = {QCCL_SPLIT_NODE, QCCL_SPLIT_NODE, QCCL_SPLIT_NODE, QCCL_SPLIT_NODE,
                            QCCL_SPLIT_NODE},
                  .rank = {0, 1, 2, 3, 4},
                  .count = {5, 5, 5, 5, 5}};
    plan_t some = {.color = {QCCL_SPLIT_NODE, 0, nowhere, QCCL_SPLIT_NODE, 0},
                   .rank = {0, 0, -1, 1, 1},
                   .count = {2, 2, 0, 2, 2}};
    (void)state;
    check_plan(&world, &all);
    check_plan(&world, &some);
    assert_works(&world);
    end_plan(&all);
    end_plan(&some);
    end_world(&world);
}

/* Calls on the duplicate need not be in the order of those on the original. */
static qcclResult_t duplicate(int rank, qcclComm_t comm, void *context)
{
    qcclComm_t made = NULL;
    qcclStream_t stream = NULL;
    int found = -1, sum = 1, other = 2;
    qcclResult_t result = qcclCommDup(comm, &made, NULL);
    (void)context;
    if (result == qcclSuccess) result = qcclCommUserRank(made, &found);
    if (result == qcclSuccess && found != rank) return qcclInternalError;
    if (result == qcclSuccess) result = qcclStreamCreate(&stream);
    if (result == qcclSuccess)
        result = qcclAllReduce(&sum, &sum, 1, qcclInt32, qcclSum, rank % 2 ? comm : made, stream);
    if (result == qcclSuccess)
        result = qcclAllReduce(&other, &other, 1, qcclInt32, qcclSum, rank % 2 ? made : comm, NULL);
    if (result == qcclSuccess) result = qcclStreamSynchronize(stream);
    qcclStreamDestroy(stream);
    /* Odd ranks add `other` where even ones add `sum`. */
    if (result == qcclSuccess && (sum != (rank % 2 ? 8 : 7) || other != (rank % 2 ? 7 : 8)))
        return qcclInternalError;
    if (result == qcclSuccess) result = qcclCommDestroy(made);
    return result;
}

static void duplicates(void **state)
{
    int kind;
    (void)state;
    for (kind = 0; kind < 2; kind++) {
        world_t world = kind ? make_world(threads) : join_world(threads, NULL);
        const outcome_t outcome = on_every_rank(&world, duplicate, NULL);
        assert_all_succeed(&outcome, threads);
        assert_works(&world);
        end_world(&world);
    }
}

static qcclResult_t split_or_duplicate(int rank, qcclComm_t comm, void *context)
{
    qcclComm_t made = (qcclComm_t)context;
    if (rank == 2) return qcclCommSplit(comm, 0, 0, &made, NULL);
    return qcclCommDup(comm, &made, NULL);
}

static void a_split_is_no_duplicate(void **state)
{
    world_t world = join_world(threads, NULL);
    int nothing = 0;
    const outcome_t outcome = on_every_rank(&world, split_or_duplicate, &nothing);
    (void)state;
    assert_all_say(&outcome, threads, qcclMismatch,
                   "rank 2 calls qcclCommSplit, rank 0 qcclCommDup");
    assert_works(&world);
    end_world(&world);
}

/* A group outlives its parent and may be split itself. */
static qcclResult_t split_again(int rank, qcclComm_t comm, void *context)
{
    qcclComm_t *parent = context, half = NULL, pair = NULL;
    qcclResult_t result = qcclCommSplit(comm, rank / 2, -rank, &half, NULL);
    int sum;
    if (result != qcclSuccess) return result;
    parent[rank] = NULL;
    result = qcclCommDestroy(comm);
    if (result == qcclSuccess) result = qcclCommSplit(half, 0, rank, &pair, NULL);
    if (result == qcclSuccess) result = sum_of(pair, rank, &sum);
    if (result == qcclSuccess && sum != (rank < 4 ? rank / 2 * 4 + 1 : 4)) return qcclInternalError;
    if (result == qcclSuccess) result = qcclCommUserRank(pair, &sum);
    if (result == qcclSuccess && sum != rank % 2) return qcclInternalError;
    qcclCommDestroy(half);
    qcclCommDestroy(pair);
    return result;
}

static void splits_of_splits(void **state)
{
    int kind;
    (void)state;
    for (kind = 0; kind < 2; kind++) {
        world_t world = kind ? make_world(threads) : join_world(threads, NULL);
        const outcome_t outcome = on_every_rank(&world, split_again, world.comms);
        assert_all_succeed(&outcome, threads);
    }
}

/* Configs must match within a group, and only there. */
static qcclResult_t split_with_config(int rank, qcclComm_t comm, void *context)
{
    static const char *const codecs[threads] = {"int8", "none", "int4", "none", "int8"};
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t made = NULL;
    qcclResult_t result;
    int sum;
    (void)context;
    config.codec = codecs[rank];
    result = qcclCommSplit(comm, rank % 2, 0, &made, &config);
    if (rank % 2 == 0) {
        if (result != qcclMismatch || made) return qcclInternalError;
        return strstr(qcclGetLastError(comm), "codec: rank 1 has \"int4\", rank 0 has \"int8\"")
                   ? qcclSuccess
                   : qcclInternalError;
    }
    if (result == qcclSuccess) result = sum_of(made, rank, &sum);
    if (result == qcclSuccess && sum != 4) return qcclInternalError;
    qcclCommDestroy(made);
    return result;
}

static void one_groups_mismatch_is_its_own(void **state)
{
    world_t world = join_world(threads, NULL);
    const outcome_t outcome = on_every_rank(&world, split_with_config, NULL);
    (void)state;
    assert_all_succeed(&outcome, threads);
    assert_works(&world);
    end_world(&world);
}

static qcclResult_t split_all(int rank, qcclComm_t comm, void *context)
{
    qcclComm_t made = NULL;
    qcclResult_t result = qcclCommSplit(comm, 0, 0, &made, NULL);
    (void)rank;
    (void)context;
    if (result == qcclSuccess) result = qcclCommDestroy(made);
    return result;
}

/* Rank 1 delays the others in the middle of the split until rank 0 has given up. */
typedef struct {
    atomic_int has_given_up;
    qcclResult_t result[3];
} hindered_t;

static void hinder(int32_t level, const char *line, void *context)
{
    hindered_t *hindered = context;
    int i;
    (void)level;
    if (strstr(line, "rank 1 of 3 over"))
        for (i = 0; i < 2000 && !atomic_load(&hindered->has_given_up); i++) sleep_ms(10);
}

static qcclResult_t split_hindered(int rank, qcclComm_t comm, void *context)
{
    hindered_t *hindered = context;
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t made = NULL;
    config.timeout = rank == 0 ? 2 : 60;
    config.log.function = hinder;
    config.log.context = hindered;
    hindered->result[rank] = qcclCommSplit(comm, 0, 0, &made, &config);
    if (rank == 0) atomic_store(&hindered->has_given_up, 1);
    return made ? qcclInternalError : qcclSuccess;
}

/* The whole group gets the timeout, and the next split works. */
static void one_that_is_given_up_leaves_nothing_behind(void **state)
{
    world_t world = join_world(3, NULL);
    hindered_t hindered = {0, {qcclSuccess}};
    outcome_t outcome;
    int rank;
    (void)state;
    setenv("QCCL_DEBUG", "info", 1);
    outcome = on_every_rank(&world, split_hindered, &hindered);
    unsetenv("QCCL_DEBUG");
    assert_all_succeed(&outcome, 3);
    for (rank = 0; rank < 3; rank++) assert_int_equal(hindered.result[rank], qcclTimeout);
    outcome = on_every_rank(&world, split_all, NULL);
    assert_all_succeed(&outcome, 3);
    assert_works(&world);
    end_world(&world);
}

typedef struct {
    qcclComm_t comm;
    atomic_int has_come, has_revoked;
    qcclResult_t result[3];
    char sentence[3][sentence_bytes];
} outrun_t;

/* Rank 0 waits for rank 2, and does not look at what it gets before the others are past the call.
 */
static void revoke_when_the_others_are_past(void *context)
{
    outrun_t *outrun = context;
    if (!outrun->comm || atomic_load(&outrun->has_revoked)) return;
    while (!atomic_load(&outrun->has_come)) sleep_ms(1);
    sleep_ms(500);
    qcclCommRevoke(outrun->comm);
    atomic_store(&outrun->has_revoked, 1);
}

static qcclResult_t outrun(int rank, qcclComm_t comm, void *context)
{
    outrun_t *outrun = context;
    qcclComm_t made = NULL;
    if (rank == 2) sleep_ms(500);
    if (rank == 2) atomic_store(&outrun->has_come, 1);
    outrun->result[rank] = qcclCommSplit(comm, 0, 0, &made, NULL);
    snprintf(outrun->sentence[rank], sentence_bytes, "%s", qcclGetLastError(NULL));
    return made ? qcclInternalError : qcclSuccess;
}

/* Ranks 1 and 2 would wait for rank 0 until the timeout, which is far away. */
static void who_is_past_the_call_hears_that_it_failed(void **state)
{
    qcclConfig_t configs[3] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    outrun_t outruns = {.comm = NULL};
    outcome_t outcome;
    world_t world;
    (void)state;
    configs[0].idle.function = revoke_when_the_others_are_past;
    configs[0].idle.context = &outruns;
    for (int rank = 0; rank < 3; rank++) configs[rank].timeout = 600;
    world = join_world(3, configs);
    outruns.comm = world.comms[0];
    outcome = on_every_rank(&world, outrun, &outruns);
    assert_all_succeed(&outcome, 3);
    assert_true(atomic_load(&outruns.has_revoked));
    for (int rank = 0; rank < 3; rank++) {
        assert_says(outruns.sentence[rank], "rank 0 revoked the communicator");
        assert_int_equal(outruns.result[rank], qcclRevoked);
    }
    end_world(&world);
}

static hold_t held = {.part = "rank 1 of 2 over"};

static qcclResult_t split_in_two(qcclComm_t comm)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t made = NULL;
    config.timeout = 5;
    config.log.function = hold_at_line;
    config.log.context = &held;
    return qcclCommSplit(comm, 0, 0, &made, &config);
}

/* A thread that waits for the others of its group returns when another thread aborts the parent. */
static void aborted_under_a_thread(void **state)
{
    world_t world = join_world(2, NULL);
    waiter_t waiters[2];
    (void)state;
    setenv("QCCL_DEBUG", "info", 1);
    start_waiter_in(&waiters[1], world.comms[1], split_in_two);
    start_waiter_in(&waiters[0], world.comms[0], split_in_two);
    await_hold(&held);
    assert_int_equal(qcclCommAbort(world.comms[0]), qcclSuccess);
    check_waiter(&waiters[0], qcclInvalidUsage, "is being ended by another thread");
    atomic_store(&held.may_go_on, 1);
    check_waiter(&waiters[1], qcclRevoked, "qcclCommSplit: rank 0 has ended the communicator");
    unsetenv("QCCL_DEBUG");
    world.comms[0] = NULL;
    end_world(&world);
}

/* With a NULL config the group inherits the parent's config. */
static qcclResult_t inherit(int rank, qcclComm_t comm, void *context)
{
    char text[4096];
    size_t bytes = sizeof text;
    qcclComm_t made = NULL;
    qcclResult_t result = qcclCommSplit(comm, 0, 0, &made, NULL);
    (void)rank;
    (void)context;
    if (result == qcclSuccess) result = qcclExplain(made, "all_reduce bytes=1M", text, &bytes);
    if (result == qcclSuccess && !strstr(text, "int8")) result = qcclInternalError;
    qcclCommDestroy(made);
    return result;
}

static void a_config_is_inherited(void **state)
{
    qcclConfig_t configs[2] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    world_t world;
    outcome_t outcome;
    (void)state;
    configs[0].codec = configs[1].codec = "int8";
    world = join_world(2, configs);
    outcome = on_every_rank(&world, inherit, NULL);
    assert_all_succeed(&outcome, 2);
    end_world(&world);
}

static qcclResult_t split_or_reduce(int rank, qcclComm_t comm, void *context)
{
    qcclComm_t made = NULL;
    (void)context;
    if (rank == 1) {
        char mine[8] = {0}, all[8 * 2];
        return qcclAllGather(mine, all, sizeof mine, qcclUint8, comm, NULL);
    }
    return qcclCommSplit(comm, 0, 0, &made, NULL);
}

/* Even a collective that exchanges the same data is not taken for a split. */
static void no_other_call_passes_for_it(void **state)
{
    world_t world = make_world(2);
    const outcome_t outcome = on_every_rank(&world, split_or_reduce, NULL);
    qcclErrorInfo_t info;
    (void)state;
    assert_all_say(&outcome, 2, qcclMismatch,
                   "rank 1 calls all_gather, rank 0 calls comm_split, in call 1");
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    assert_int_equal(qcclGetErrorInfo(world.comms[0], &info), qcclSuccess);
    assert_int_equal(info.collective, 5);
    end_world(&world);
}

/* A wrong call has no effect, and the correct call completes. */
static void misuse_is_refused(void **state)
{
    world_t world = make_world(2);
    qcclComm_t *const made = world.comms, comm = world.comms[0];
    qcclConfig_t config = QCCL_CONFIG_INIT;
    outcome_t outcome;
    (void)state;
    assert_int_equal(qcclCommSplit(NULL, 0, 0, made, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "comm is NULL");
    assert_int_equal(qcclCommSplit(comm, -3, 0, made, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(comm), "color is -3; possible are 0 and more");
    assert_int_equal(qcclCommSplit(comm, 0, 0, NULL, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(comm), "comm_out is NULL");
    config.codec = "int9";
    assert_int_equal(qcclCommSplit(comm, 0, 0, made, &config), qcclInvalidArgument);
    assert_says(qcclGetLastError(comm), "config: ");
    assert_ptr_equal(*made, comm);
    outcome = on_every_rank(&world, split_all, NULL);
    assert_all_succeed(&outcome, 2);
    assert_works(&world);
    end_world(&world);
}

static qcclResult_t keep_what_is_made(int rank, qcclComm_t comm, void *context)
{
    qcclComm_t *made = context;
    return qcclCommSplit(comm, 0, 0, &made[rank], NULL);
}

/* As with any communicator whose ranks are threads of one process, one thread cannot make blocking
 * calls of all ranks. */
static void one_thread_for_all_is_told_so(void **state)
{
    world_t world;
    qcclComm_t made[2] = {NULL, NULL};
    outcome_t outcome;
    (void)state;
    if (UNDER_THREAD_SANITIZER) skip(); /* which has a thread of its own */
    world = make_world(2);
    outcome = on_every_rank(&world, keep_what_is_made, made);
    assert_all_succeed(&outcome, 2);
    assert_int_equal(qcclBarrier(made[0], NULL), qcclInvalidUsage);
    assert_says(qcclGetLastError(made[0]), "need a thread each");
    assert_int_equal(qcclCommDestroy(made[0]), qcclSuccess);
    assert_int_equal(qcclCommDestroy(made[1]), qcclSuccess);
    end_world(&world);
}

/* A split takes its turn after the calls on streams. */
static qcclResult_t split_behind_a_stream(int rank, qcclComm_t comm, void *context)
{
    static float values[2][100000];
    qcclStream_t stream = NULL;
    qcclComm_t made = NULL;
    qcclResult_t result = qcclStreamCreate(&stream);
    (void)context;
    values[rank][0] = 1;
    if (result == qcclSuccess)
        result =
            qcclAllReduce(values[rank], values[rank], 100000, qcclFloat32, qcclSum, comm, stream);
    if (result == qcclSuccess) result = qcclCommSplit(comm, 0, 0, &made, NULL);
    if (result == qcclSuccess && values[rank][0] != 2) result = qcclInternalError;
    if (result == qcclSuccess) result = qcclStreamDestroy(stream);
    qcclCommDestroy(made);
    return result;
}

static void it_has_its_place_among_calls(void **state)
{
    world_t world = make_world(2);
    const outcome_t outcome = on_every_rank(&world, split_behind_a_stream, NULL);
    (void)state;
    assert_all_succeed(&outcome, 2);
    end_world(&world);
}

/* Computes sums in halves of the communicator, and in all of it, again and again. */
static qcclResult_t sum_in_halves(int rank, qcclComm_t comm, shared_t *noted)
{
    qcclResult_t result = qcclSuccess;
    int i, sum;
    for (i = 0; i < 200 && result == qcclSuccess; i++) {
        qcclComm_t half = NULL;
        if (i % 20 == 0) result = qcclCommSplit(comm, rank % 2, -rank, &half, NULL);
        if (result == qcclSuccess && half) result = sum_of(half, rank, &sum);
        if (result == qcclSuccess && half && sum != 2 + 2 * (rank % 2)) result = qcclInternalError;
        qcclCommDestroy(half);
        if (result == qcclSuccess) result = sum_of(comm, rank, &sum);
        if (result == qcclSuccess && sum != 6) result = qcclInternalError;
        if (result == qcclSuccess) noted->ranks[rank].calls++;
    }
    return result;
}

static void between_processes(void **state)
{
    scenario_t scenario = {.body = sum_in_halves, .missing = -1};
    int statuses[size];
    (void)state;
    for (scenario.is_oob = 0; scenario.is_oob < 2; scenario.is_oob++) {
        play(&scenario, statuses);
        check_all_succeeded(statuses);
    }
}

/* Rank 3 dies before it comes to the split; all ranks get the error, whatever their color. */
static void a_dead_rank_is_named(void **state)
{
    scenario_t scenario = {
        .body = sum_in_halves, .missing = -1, .inject = "rank=3,call=22,kill", .timeout = 20};
    int statuses[size];
    (void)state;
    play(&scenario, statuses);
    check_all_name(3, qcclPeerLost, "comm_split, call 22");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_color_and_key),
        cmocka_unit_test(by_host),
        cmocka_unit_test(duplicates),
        cmocka_unit_test(a_split_is_no_duplicate),
        cmocka_unit_test(splits_of_splits),
        cmocka_unit_test(one_groups_mismatch_is_its_own),
        cmocka_unit_test(one_that_is_given_up_leaves_nothing_behind),
        cmocka_unit_test(who_is_past_the_call_hears_that_it_failed),
        cmocka_unit_test(aborted_under_a_thread),
        cmocka_unit_test(a_config_is_inherited),
        cmocka_unit_test(no_other_call_passes_for_it),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(one_thread_for_all_is_told_so),
        cmocka_unit_test(it_has_its_place_among_calls),
        cmocka_unit_test(between_processes),
        cmocka_unit_test(a_dead_rank_is_named),
    };
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
