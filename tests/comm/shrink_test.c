/* Tests qcclCommShrink over threads and over processes: of failed and healthy communicators, with
 * and without a list of excluded ranks; and the refusal of misuse. */
#include "tests/api/process_kit.h"

#include <signal.h>
#include <sys/wait.h>
#include <stdlib.h>
#include <string.h>

/* The sum shows which of the old ranks take part. */
static qcclResult_t sum_of(qcclComm_t comm, int mine, int *sum)
{
    *sum = mine;
    return qcclAllReduce(sum, sum, 1, qcclInt32, qcclSum, comm, NULL);
}

/* Replaces `comm` by the shrunk communicator. */
static qcclResult_t shrink_into(qcclComm_t *comm, const int *exclude, int excluded, int flags)
{
    qcclComm_t made = NULL;
    qcclResult_t result = qcclCommShrink(*comm, exclude, excluded, &made, NULL, flags);
    if (result != qcclSuccess) return result;
    result = qcclCommDestroy(*comm);
    *comm = made;
    return result;
}

/* The shrink that the ranks of a world make in a test. */
typedef struct {
    world_t *world;
    int exclude[most_ranks], excluded, flags;
    int members; /* bit set of the old ranks that remain */
} order_t;

static qcclResult_t shrink_as_ordered(int rank, qcclComm_t comm, void *context)
{
    order_t *order = context;
    int sum, ranks, place, other, expected = 0;
    qcclResult_t result;
    if (!(order->members >> rank & 1)) return qcclSuccess;
    result = shrink_into(&comm, order->exclude, order->excluded, order->flags);
    if (result != qcclSuccess) return result;
    order->world->comms[rank] = comm;
    result = sum_of(comm, 1 << rank, &sum);
    if (result != qcclSuccess) return result;
    qcclCommCount(comm, &ranks);
    qcclCommUserRank(comm, &place);
    for (other = 0; other < rank; other++) expected += order->members >> other & 1;
    return sum == order->members && ranks == __builtin_popcount((unsigned)sum) && place == expected
               ? qcclSuccess
               : qcclInternalError;
}

static void check_order(order_t *order)
{
    const outcome_t outcome = on_every_rank(order->world, shrink_as_ordered, order);
    assert_all_succeed(&outcome, order->world->size);
}

/* Rank 2 leaves unnoticed; then rank 0 revokes; then rank 1 is excluded. */
static void again_and_again(void **state)
{
    int kind;
    (void)state;
    for (kind = 0; kind < 2; kind++) {
        world_t world = kind ? make_world(5) : join_world(5, NULL);
        order_t order = {.world = &world, .members = 27, .exclude = {0}};
        assert_int_equal(qcclCommAbort(world.comms[2]), qcclSuccess);
        world.comms[2] = NULL;
        check_order(&order);
        assert_int_equal(qcclCommRevoke(world.comms[0]), qcclSuccess);
        check_order(&order);
        order.exclude[0] = 1;
        order.excluded = 1;
        order.members = 25;
        check_order(&order);
        end_world(&world);
    }
}

/* Excluded ranks are numbered in the communicator that is shrunk. */
static qcclResult_t shrink_a_part(int rank, qcclComm_t comm, void *context)
{
    qcclComm_t part = NULL;
    const int last = 1;
    int sum;
    qcclResult_t result = qcclCommSplit(comm, rank % 2, -rank, &part, NULL);
    (void)context;
    if (result == qcclSuccess && rank > 1) result = shrink_into(&part, &last, 1, 0);
    if (result == qcclSuccess && rank > 1) result = sum_of(part, rank, &sum);
    if (result == qcclSuccess && rank > 1 && sum != rank) result = qcclInternalError;
    qcclCommDestroy(part);
    return result;
}

static void a_part_of_a_split(void **state)
{
    world_t world = make_world(4);
    const outcome_t outcome = on_every_rank(&world, shrink_a_part, NULL);
    (void)state;
    assert_all_succeed(&outcome, 4);
    assert_works(&world);
    end_world(&world);
}

/* QCCL_SHRINK_ABORT first ends the calls that threads are in, on the other ranks as well. */
static void whoever_is_inside_comes_out(void **state)
{
    world_t world = join_world(3, NULL);
    order_t order = {.world = &world, .members = 7, .flags = QCCL_SHRINK_ABORT};
    waiter_t waiters[2];
    int i;
    (void)state;
    for (i = 0; i < 2; i++) start_waiter(&waiters[i], world.comms[i]);
    check_order(&order);
    for (i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
        assert_int_equal(waiters[i].result, qcclRevoked);
        assert_says(waiters[i].sentence, "shrinks the communicator");
    }
    end_world(&world);
}

/* If the communicator has not failed, calls on streams complete before the shrink. */
static qcclResult_t shrink_behind_a_stream(int rank, qcclComm_t comm, void *context)
{
    static float values[2][4000000];
    qcclStream_t stream = NULL;
    qcclComm_t made = NULL;
    qcclResult_t result = qcclStreamCreate(&stream);
    (void)context;
    if (result == qcclSuccess)
        result =
            qcclAllReduce(values[rank], values[rank], 4000000, qcclFloat32, qcclSum, comm, stream);
    if (result == qcclSuccess) result = qcclCommShrink(comm, NULL, 0, &made, NULL, 0);
    if (result == qcclSuccess) result = qcclStreamQuery(stream);
    qcclStreamDestroy(stream);
    qcclCommDestroy(made);
    return result;
}

static void what_is_enqueued_comes_first(void **state)
{
    world_t world = make_world(2);
    const outcome_t outcome = on_every_rank(&world, shrink_behind_a_stream, NULL);
    (void)state;
    assert_all_succeed(&outcome, 2);
    end_world(&world);
}

typedef struct {
    qcclResult_t result[4];
    char sentence[4][sentence_bytes];
    int exclude[4];
    double timeout;
} quarrel_t;

static qcclResult_t quarrel(int rank, qcclComm_t comm, void *context)
{
    quarrel_t *told = context;
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t made = NULL;
    const int exclude = told->exclude[rank];
    config.timeout = told->timeout;
    if (exclude == rank) return qcclSuccess;
    told->result[rank] =
        qcclCommShrink(comm, &exclude, exclude >= 0, &made, &config, QCCL_SHRINK_DEFAULT);
    strcpy(told->sentence[rank], qcclGetLastError(comm));
    return qcclCommDestroy(made);
}

/* All ranks must exclude the same ranks. A mismatch ends nothing, and a correct call completes. */
static void lists_that_differ_are_told(void **state)
{
    world_t world = join_world(4, NULL);
    quarrel_t told = {.exclude = {3, 3, -1, -1}, .timeout = 20};
    order_t order = {.world = &world, .members = 15};
    int rank;
    (void)state;
    on_every_rank(&world, quarrel, &told);
    for (rank = 0; rank < 4; rank++) {
        assert_int_equal(told.result[rank], qcclMismatch);
        assert_says(told.sentence[rank], rank < 3 ? "leaves out rank 3, rank 2 does not"
                                                  : "leaves out rank 3, rank 3 does not");
    }
    check_order(&order);
    end_world(&world);
}

/* Later shrinks of the same communicator leave the rank out as well. If the rank calls them, it
 * gets an error. */
static void who_was_left_out_stays_out(void **state)
{
    world_t world = make_world(4);
    quarrel_t first = {.exclude = {2, 2, 2, 2}}, next = {.exclude = {-1, -1, -1, -1}};
    int rank;
    (void)state;
    on_every_rank(&world, quarrel, &first);
    on_every_rank(&world, quarrel, &next);
    for (rank = 0; rank < 4; rank++) {
        assert_int_equal(first.result[rank], qcclSuccess);
        assert_int_equal(next.result[rank], rank == 2 ? qcclPeerLost : qcclSuccess);
    }
    assert_says(next.sentence[2], "have gone on without rank 2");
    end_world(&world);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    world_t world = join_world(3, NULL);
    quarrel_t told = {.exclude = {-1, 1, -1}, .timeout = 1};
    order_t order = {.world = &world, .members = 5, .exclude = {1}, .excluded = 1};
    int rank;
    (void)state;
    on_every_rank(&world, quarrel, &told);
    for (rank = 0; rank < 3; rank += 2) {
        assert_int_equal(told.result[rank], qcclTimeout);
        assert_says(told.sentence[rank], "rank 1 did not come to qcclCommShrink within 1 s");
    }
    check_order(&order); /* excludes rank 1 */
    end_world(&world);
}

/* All ranks hear of configs that do not match, as at any creation. */
static qcclResult_t shrink_with_config(int rank, qcclComm_t comm, void *context)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t made = NULL;
    (void)context;
    config.codec = rank == 1 ? "int4" : "int8";
    return qcclCommShrink(comm, NULL, 0, &made, &config, QCCL_SHRINK_DEFAULT);
}

static void configs_that_differ_are_told(void **state)
{
    world_t world = join_world(3, NULL);
    order_t order = {.world = &world, .members = 7};
    const outcome_t outcome = on_every_rank(&world, shrink_with_config, NULL);
    (void)state;
    assert_all_say(&outcome, 3, qcclMismatch, "codec: rank 1 has \"int4\", rank 0 has \"int8\"");
    check_order(&order);
    end_world(&world);
}

static void misuse_is_refused(void **state)
{
    static const struct {
        int exclude[3], excluded, flags, has_out;
        const char *part;
    } wrong[] = {
        {{0}, -1, 0, 1, "exclude_count is -1, not 0 or more"},
        {{3}, 1, 0, 1, "exclude[0] is 3, but the ranks are 0 to 2"},
        {{1, -1}, 2, 0, 1, "exclude[1] is -1, but the ranks are 0 to 2"},
        {{1, 0}, 2, 0, 1, "exclude[1] is 0, this rank itself"},
        {{2, 1, 2}, 3, 0, 1, "exclude[2] is 2, as exclude[0] is"},
        {{0}, 0, 2, 1, "flags is 2; possible are QCCL_SHRINK_DEFAULT (0)"},
        {{9}, 1, QCCL_SHRINK_ABORT, 1, "exclude[0] is 9"},
        {{0}, 0, QCCL_SHRINK_ABORT, 0, "comm_out is NULL"},
    };
    world_t world = make_world(3);
    qcclComm_t made = NULL;
    qcclConfig_t config = QCCL_CONFIG_INIT;
    size_t i;
    (void)state;
    assert_int_equal(qcclCommShrink(NULL, NULL, 0, &made, NULL, 0), qcclInvalidArgument);
    assert_int_equal(qcclCommShrink(world.comms[0], NULL, 2, &made, NULL, 0), qcclInvalidArgument);
    assert_says(qcclGetLastError(world.comms[0]), "exclude is NULL, but exclude_count is 2");
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(qcclCommShrink(world.comms[0], wrong[i].exclude, wrong[i].excluded,
                                        wrong[i].has_out ? &made : NULL, NULL, wrong[i].flags),
                         qcclInvalidArgument);
        assert_says(qcclGetLastError(world.comms[0]), wrong[i].part);
    }
    config.algorithm = "rign";
    assert_int_equal(qcclCommShrink(world.comms[0], NULL, 0, &made, &config, QCCL_SHRINK_ABORT),
                     qcclInvalidArgument);
    assert_null(made);
    assert_works(&world);
    end_world(&world);
}

/* A thread that waits in a shrink returns when another thread aborts the communicator. */
static qcclResult_t shrink_alone(qcclComm_t comm)
{
    return shrink_into(&comm, NULL, 0, QCCL_SHRINK_DEFAULT);
}

static void aborted_under_a_thread(void **state)
{
    world_t world = join_world(3, NULL);
    order_t order = {.world = &world, .members = 6};
    waiter_t waiter;
    (void)state;
    start_waiter_in(&waiter, world.comms[0], shrink_alone);
    assert_int_equal(qcclCommAbort(world.comms[0]), qcclSuccess);
    check_waiter(&waiter, qcclInvalidUsage, "is being ended by another thread");
    world.comms[0] = NULL;
    check_order(&order);
    end_world(&world);
}

/* ---- Ranks that are held at a line of their log */

/* Makes a communicator whose rank 0 is held in its calls. */
static world_t join_held(int ranks, hold_t *hold)
{
    qcclConfig_t configs[most_ranks] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT, QCCL_CONFIG_INIT,
                                        QCCL_CONFIG_INIT};
    world_t world;
    configs[0].log.function = hold_at_line;
    configs[0].log.context = hold;
    setenv("QCCL_DEBUG", "info", 1);
    world = join_world(ranks, configs);
    unsetenv("QCCL_DEBUG");
    return world;
}

static qcclResult_t shrink_for(qcclComm_t comm, double timeout, const int *exclude, int excluded)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t made = NULL;
    qcclResult_t result;
    config.timeout = timeout;
    result = qcclCommShrink(comm, exclude, excluded, &made, &config, QCCL_SHRINK_DEFAULT);
    qcclCommDestroy(made);
    return result;
}

static const int last = 3, last_but_one = 2, middle_and_last[] = {1, 3};

static qcclResult_t shrink_without_2(qcclComm_t comm)
{
    return shrink_for(comm, 20, &last_but_one, 1);
}

/* The other ranks have decided to go on without rank 2, and have not made their communicator yet.
 */
static void who_comes_when_the_others_have_decided_is_told(void **state)
{
    hold_t hold = {.part = "leaves out rank 2"};
    world_t world = join_held(3, &hold);
    waiter_t waiters[2];
    int i;
    (void)state;
    for (i = 0; i < 2; i++) start_waiter_in(&waiters[i], world.comms[i], shrink_without_2);
    await_hold(&hold);
    assert_int_equal(shrink_for(world.comms[2], 20, NULL, 0), qcclPeerLost);
    assert_says(qcclGetLastError(world.comms[2]), "the other ranks have gone on without rank 2");
    atomic_store(&hold.may_go_on, 1);
    for (i = 0; i < 2; i++) check_waiter(&waiters[i], qcclSuccess, "");
    end_world(&world);
}

static qcclResult_t shrink_without_3(qcclComm_t comm) { return shrink_for(comm, 20, &last, 1); }

/* Rank 2 gives up after it has voted. The others go on with its vote. Rank 2 then excludes one of
 * them, and at last leaves. */
static void who_was_decided_upon_cannot_be_excluded(void **state)
{
    hold_t hold = {.part = "leaves out rank 3"};
    world_t world = join_held(4, &hold);
    waiter_t waiters[2];
    int i;
    (void)state;
    assert_int_equal(shrink_for(world.comms[2], 0.1, &last, 1), qcclTimeout);
    for (i = 0; i < 2; i++) start_waiter_in(&waiters[i], world.comms[i], shrink_without_3);
    await_hold(&hold);
    assert_int_equal(shrink_for(world.comms[2], 0.1, middle_and_last, 2), qcclMismatch);
    assert_says(qcclGetLastError(world.comms[2]),
                "rank 2 leaves out rank 1, with which the others have gone on");
    atomic_store(&hold.may_go_on, 1);
    assert_int_equal(qcclCommAbort(world.comms[2]), qcclSuccess);
    world.comms[2] = NULL;
    for (i = 0; i < 2; i++) check_waiter(&waiters[i], qcclSuccess, "");
    end_world(&world);
}

static hold_t in_creation;

static qcclResult_t shrink_held(qcclComm_t comm)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t made = NULL;
    config.timeout = 20;
    config.log.function = hold_at_line;
    config.log.context = &in_creation;
    return qcclCommShrink(comm, NULL, 0, &made, &config, QCCL_SHRINK_DEFAULT);
}

/* Long enough for the steps of a creation, in seconds. */
static double short_timeout(void)
{
    const char *factor = getenv("QTEST_PATIENCE");
    return 1.0 * (factor ? atof(factor) : 1);
}

/* Rank 1 gives up while rank 0 makes the new communicator. Rank 0 ends the shrink with the vote
 * that rank 1 has left, and rank 1's next shrink is another one. */
static void who_has_given_up_cannot_come_back(void **state)
{
    world_t world = join_world(2, NULL);
    waiter_t waiter;
    (void)state;
    in_creation = (hold_t){.part = "rank 0 of 2 over"};
    setenv("QCCL_DEBUG", "info", 1);
    start_waiter_in(&waiter, world.comms[0], shrink_held);
    assert_int_equal(shrink_for(world.comms[1], short_timeout(), NULL, 0), qcclTimeout);
    unsetenv("QCCL_DEBUG");
    assert_true(atomic_load(&in_creation.is_held));
    atomic_store(&in_creation.may_go_on, 1);
    check_waiter(&waiter, qcclTimeout, "rank 0 did not come");
    assert_int_equal(shrink_for(world.comms[1], 5, NULL, 0), qcclPeerLost);
    assert_says(qcclGetLastError(world.comms[1]),
                "the other ranks have finished a qcclCommShrink that rank 1 had given up");
    end_world(&world);
}

/* A thread that waits for the others to make the new communicator returns, too. */
static void aborted_in_the_creation(void **state)
{
    world_t world = join_world(2, NULL);
    waiter_t waiters[2];
    double began;
    (void)state;
    in_creation = (hold_t){.part = "rank 1 of 2 over"};
    setenv("QCCL_DEBUG", "info", 1);
    start_waiter_in(&waiters[1], world.comms[1], shrink_held);
    start_waiter_in(&waiters[0], world.comms[0], shrink_held);
    await_hold(&in_creation);
    began = now_s();
    assert_int_equal(qcclCommAbort(world.comms[0]), qcclSuccess);
    check_waiter(&waiters[0], qcclInvalidUsage, "is being ended by another thread");
    assert_true(now_s() - began < 10); /* of 20 */
    atomic_store(&in_creation.may_go_on, 1);
    check_waiter(&waiters[1], qcclSuccess, ""); /* it goes on alone */
    unsetenv("QCCL_DEBUG");
    world.comms[0] = NULL;
    end_world(&world);
}

/* Waits until `comm` has failed because of another rank. */
static void await_failure(qcclComm_t comm)
{
    qcclResult_t result = qcclSuccess;
    while (result == qcclSuccess) qcclCommGetAsyncError(comm, &result);
}

static void linger(void *context)
{
    (void)context;
    sleep_ms(10);
}

static qcclResult_t shrink_with_abort(qcclComm_t comm)
{
    return shrink_into(&comm, NULL, 0, QCCL_SHRINK_ABORT);
}

/* The abort and the shrink both wait for a slow thread to leave the communicator, and either may
 * then proceed first. A use of freed memory shows with MALLOC_PERTURB_, which Meson sets. */
static void aborted_while_it_waits_for_a_thread(void **state)
{
    int i;
    (void)state;
    for (i = 0; i < 16; i++) {
        qcclConfig_t configs[2] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
        waiter_t inside, waiter;
        world_t world;
        configs[0].idle.function = linger;
        world = join_world(2, configs);
        start_waiter(&inside, world.comms[0]);
        start_waiter_in(&waiter, world.comms[0], shrink_with_abort);
        await_failure(world.comms[1]); /* the shrink has begun */
        assert_int_equal(qcclCommAbort(world.comms[0]), qcclSuccess);
        check_waiter(&waiter, qcclInvalidUsage, "by another thread");
        check_waiter(&inside, qcclRevoked, "shrinks the communicator");
        world.comms[0] = NULL;
        end_world(&world);
    }
}

/* Three of four processes die in calls, one after another, the lowest rank first; the others go on.
 * Rank 3 is slow, so it learns of each death in a different call than the others. */
static qcclResult_t sum_to_the_last(int rank, qcclComm_t comm, shared_t *noted)
{
    qcclResult_t result = qcclSuccess;
    float *values = calloc(count, sizeof *values);
    int generation;
    for (generation = 0; generation < 3 && result == qcclSuccess; generation++) {
        int call, i, expected = 0;
        for (i = generation; i < size; i++) expected += i;
        for (call = 1; result == qcclSuccess; call++) {
            if (rank == generation && call == 4 + generation) raise(SIGKILL);
            if (rank == 3) sleep_ms(3);
            for (i = 0; i < count; i++) values[i] = (float)rank;
            result = qcclAllReduce(values, values, call % 2 ? count : 10, qcclFloat32, qcclSum,
                                   comm, NULL);
            if (result == qcclSuccess && values[7] != (float)expected) return qcclInternalError;
        }
        if (result != qcclPeerLost) return result;
        result = generation == 0 /* the kit owns the first communicator */
                     ? qcclCommShrink(comm, NULL, 0, &comm, NULL, QCCL_SHRINK_DEFAULT)
                     : shrink_into(&comm, NULL, 0, QCCL_SHRINK_DEFAULT);
        noted->ranks[rank].calls++;
    }
    free(values);
    qcclCommDestroy(comm);
    return result;
}

static void to_the_last_rank(void **state)
{
    const scenario_t scenario = {.body = sum_to_the_last, .missing = -1, .timeout = 30};
    int statuses[size], rank;
    (void)state;
    play(&scenario, statuses);
    for (rank = 0; rank < 3; rank++) assert_true(WIFSIGNALED(statuses[rank]));
    if (shared->ranks[3].result != qcclSuccess)
        fail_msg("%d: %s", (int)shared->ranks[3].result, shared->ranks[3].sentence);
    assert_int_equal(shared->ranks[3].calls, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(again_and_again),
        cmocka_unit_test(a_part_of_a_split),
        cmocka_unit_test(whoever_is_inside_comes_out),
        cmocka_unit_test(lists_that_differ_are_told),
        cmocka_unit_test(who_was_left_out_stays_out),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(configs_that_differ_are_told),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(what_is_enqueued_comes_first),
        cmocka_unit_test(aborted_under_a_thread),
        cmocka_unit_test(aborted_in_the_creation),
        cmocka_unit_test(who_comes_when_the_others_have_decided_is_told),
        cmocka_unit_test(who_was_decided_upon_cannot_be_excluded),
        cmocka_unit_test(who_has_given_up_cannot_come_back),
        cmocka_unit_test(aborted_while_it_waits_for_a_thread),
        cmocka_unit_test(to_the_last_rank),
    };
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
