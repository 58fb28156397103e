/* Tests qcclCommGrow: new ranks join the ranks of a communicator, which keep their numbers. What
 * the ranks disagree about is named, a death ends the wait, and the old communicator goes on. */
#include "tests/api/process_kit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { pair = 2, all = 4 };

static qcclResult_t sum_ranks(qcclComm_t comm, int ranks)
{
    int rank = -1, count_found = 0;
    float value;
    qcclResult_t result = qcclCommUserRank(comm, &rank);
    if (result == qcclSuccess) result = qcclCommCount(comm, &count_found);
    value = (float)rank;
    if (result == qcclSuccess)
        result = qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comm, NULL);
    if (result == qcclSuccess &&
        (count_found != ranks || value != (float)(ranks * (ranks - 1) / 2)))
        return qcclInternalError;
    return result;
}

/* What one rank passes, old or new. */
typedef struct {
    const qcclUniqueId *id;
    int nranks, rank;
    qcclResult_t (*instead)(qcclComm_t comm); /* the call that the rank makes instead, or NULL */
} growth_t;

static qcclResult_t grow(int rank, qcclComm_t comm, void *context)
{
    const growth_t *growth = (const growth_t *)context + rank;
    qcclComm_t grown = NULL;
    int own = -1;
    qcclResult_t result;
    if (growth->instead) return growth->instead(comm);
    result = qcclCommGrow(comm, growth->nranks, growth->id, growth->rank, &grown, NULL);
    if (result == qcclSuccess) result = sum_ranks(grown, growth->nranks);
    if (result == qcclSuccess) result = qcclCommUserRank(grown, &own);
    if (result == qcclSuccess && own != rank) result = qcclInternalError;
    if (result == qcclSuccess && comm) result = sum_ranks(comm, pair);
    if (grown && result == qcclSuccess) result = qcclCommDestroy(grown);
    return result;
}

static qcclUniqueId new_id(void)
{
    qcclUniqueId id;
    if (qcclGetUniqueId(&id) != qcclSuccess) fail_msg("%s", qcclGetLastError(NULL));
    return id;
}

static void new_ranks_join_threads(void **state)
{
    world_t worlds[2];
    int i;
    (void)state;
    worlds[0] = make_world(pair);
    worlds[1] = join_world(pair, NULL);
    for (i = 0; i < 2; i++) {
        const qcclUniqueId id = new_id();
        /* Rank 1 has the id, and rank 0 gets it. */
        const growth_t growths[all] = {
            {NULL, all, -1, NULL}, {&id, all, -1, NULL}, {&id, all, 2, NULL}, {&id, all, 3, NULL}};
        world_t grown = worlds[i];
        outcome_t outcome;
        grown.size = all;
        outcome = on_every_rank(&grown, grow, (void *)growths);
        assert_all_succeed(&outcome, all);
        end_world(&worlds[i]);
    }
}

/* ---- Disagreements */

static qcclResult_t duplicate(qcclComm_t comm)
{
    qcclComm_t made = NULL;
    return qcclCommDup(comm, &made, NULL);
}

/* Both old ranks get the result; the communicator works afterwards. */
static void check_refusal(const growth_t growths[pair], qcclResult_t result, const char *part)
{
    world_t world = make_world(pair);
    const outcome_t outcome = on_every_rank(&world, grow, (void *)growths);
    assert_all_say(&outcome, pair, result, part);
    assert_works(&world);
    end_world(&world);
}

static void disagreements_are_named(void **state)
{
    const qcclUniqueId ids[2] = {new_id(), new_id()};
    (void)state;
    {
        const growth_t growths[pair] = {{&ids[0], 4, -1, NULL}, {NULL, 5, -1, NULL}};
        check_refusal(growths, qcclMismatch, "nranks is 5 on rank 1, but 4 on rank 0");
    }
    {
        const growth_t growths[pair] = {{&ids[0], 4, -1, NULL}, {&ids[1], 4, -1, NULL}};
        check_refusal(growths, qcclMismatch, "rank 1 passes another id than rank 0");
    }
    {
        const growth_t growths[pair] = {{NULL, 4, -1, NULL}, {NULL, 4, -1, NULL}};
        check_refusal(growths, qcclInvalidArgument, "id is NULL on all ranks of comm");
    }
    {
        const growth_t growths[pair] = {{&ids[0], 4, -1, NULL}, {NULL, 0, 0, duplicate}};
        check_refusal(growths, qcclMismatch, "rank 1 calls qcclCommDup, rank 0 qcclCommGrow");
    }
}

static void wrong_arguments_are_refused(void **state)
{
    const qcclUniqueId id = new_id();
    world_t world = make_world(1);
    qcclComm_t grown = NULL;
    qcclConfig_t config = QCCL_CONFIG_INIT;
    (void)state;
    assert_int_equal(qcclCommGrow(world.comms[0], 1, &id, -1, &grown, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "nranks is 1, but comm has 1 ranks already");
    assert_int_equal(qcclCommGrow(world.comms[0], 2, &id, 0, &grown, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "a rank of comm keeps its number and passes -1");
    assert_int_equal(qcclCommGrow(world.comms[0], 2, &id, -1, NULL, NULL), qcclInvalidArgument);
    config.reproducible = 2;
    assert_int_equal(qcclCommGrow(world.comms[0], 2, &id, -1, &grown, &config),
                     qcclInvalidArgument);
    assert_int_equal(qcclCommGrow(NULL, 2, NULL, 1, &grown, NULL), qcclInvalidArgument);
    assert_int_equal(qcclCommGrow(NULL, 2, &id, -1, &grown, NULL), qcclInvalidArgument);
    assert_int_equal(qcclCommGrow(NULL, 2, &id, 1, NULL, NULL), qcclInvalidArgument);
    assert_null(grown);
    assert_works(&world);
    end_world(&world);
    assert_int_equal(qcclCommGrow((qcclComm_t)&grown, 2, &id, -1, &grown, NULL),
                     qcclInvalidArgument);
}

/* A new rank that came first has the number of rank 0, so rank 0 cannot join. Rank 1 learns it. */
static void a_taken_number_is_told_to_all(void **state)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    const qcclUniqueId id = new_id();
    const growth_t growths[pair] = {{&id, 3, -1, NULL}, {&id, 3, -1, NULL}};
    world_t world = join_world(pair, NULL);
    qcclComm_t intruder = NULL;
    outcome_t outcome;
    (void)state;
    config.nonblocking = 1;
    assert_int_equal(qcclCommGrow(NULL, 3, &id, 0, &intruder, &config), qcclInProgress);
    sleep_ms(300);
    outcome = on_every_rank(&world, grow, (void *)growths);
    assert_int_equal(outcome.result[0], qcclInvalidArgument);
    assert_int_equal(outcome.result[1], qcclRemoteError);
    assert_says(outcome.sentence[1], "rank 0");
    assert_true(settled(intruder) != qcclSuccess);
    assert_int_equal(qcclCommDestroy(intruder), qcclSuccess);
    assert_works(&world);
    end_world(&world);
}

/* Waits until the ranks have exchanged sizes and ids. An abort before that fails the
 * communicator. */
static void await_exchanges(qcclComm_t comm)
{
    const double began = now_s();
    qcclCommStats_t stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    while (stats.calls < 2 && now_s() - began < patience_s) {
        assert_int_equal(qcclCommGetStats(comm, &stats), qcclSuccess);
        sleep_ms(1);
    }
}

/* One thread grows both ranks, and gives up when nobody joins. */
static void an_abort_ends_the_wait_for_new_ranks(void **state)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    const qcclUniqueId id = new_id();
    world_t world = make_world(pair);
    qcclComm_t grown[pair] = {NULL, NULL};
    qcclResult_t found = qcclSuccess;
    int rank;
    (void)state;
    config.nonblocking = 1;
    for (rank = 0; rank < pair; rank++)
        assert_int_equal(
            qcclCommGrow(world.comms[rank], 3, rank == 0 ? &id : NULL, -1, &grown[rank], &config),
            qcclInProgress);
    for (rank = 0; rank < pair; rank++) await_exchanges(world.comms[rank]);
    sleep_ms(300);
    assert_int_equal(qcclCommGetAsyncError(grown[0], &found), qcclSuccess);
    assert_int_equal(found, qcclInProgress);
    assert_int_equal(qcclCommAbort(grown[0]), qcclSuccess);
    found = settled(grown[1]);
    assert_true(found == qcclRemoteError || found == qcclTimeout || found == qcclRevoked);
    assert_says(qcclGetLastError(grown[1]), "rank 0");
    assert_int_equal(qcclCommDestroy(grown[1]), qcclSuccess);
    for (rank = 0; rank < pair; rank++) assert_int_equal(settled(world.comms[rank]), qcclSuccess);
    assert_works(&world);
    end_world(&world);
}

/* ---- Processes: ranks 0 and 1 are the job, which ranks 2 and 3 join */

static qcclResult_t split_off(int rank, qcclComm_t comm, qcclComm_t *job)
{
    return qcclCommSplit(comm, rank < pair ? 0 : QCCL_SPLIT_NOCOLOR, 0, job, NULL);
}

/* Rank 0 makes the id, and leaves it in shared memory for the new ranks. */
static qcclResult_t grow_to(int rank, qcclComm_t job, int ranks, shared_t *noted, qcclComm_t *grown)
{
    atomic_int *const has_id = (atomic_int *)noted->gathered[size - 1] + ranks;
    qcclUniqueId *const id = (qcclUniqueId *)noted->gathered[0] + ranks;
    const double began = now_s();
    if (rank == 0) {
        const qcclResult_t made = qcclGetUniqueId(id);
        if (made != qcclSuccess) return made;
        atomic_store(has_id, 1);
    }
    if (job) return qcclCommGrow(job, ranks, rank == 0 ? id : NULL, -1, grown, NULL);
    while (!atomic_load(has_id) && now_s() - began < patience_s) sleep_ms(1);
    return qcclCommGrow(NULL, ranks, id, rank, grown, NULL);
}

static void keep_sentence(int rank, qcclResult_t result, shared_t *noted)
{
    if (result != qcclSuccess)
        snprintf(noted->gathered[1] + rank * 512, 512, "%s", qcclGetLastError(NULL));
}

/* First rank 2 joins, and then rank 3 joins all three. */
static qcclResult_t grow_twice(int rank, qcclComm_t comm, shared_t *noted)
{
    qcclComm_t job = NULL, three = NULL, four = NULL;
    qcclResult_t result = split_off(rank, comm, &job);
    if (result == qcclSuccess && rank < 3) result = grow_to(rank, job, 3, noted, &three);
    if (result == qcclSuccess && three) result = sum_ranks(three, 3);
    if (result == qcclSuccess) result = grow_to(rank, three, 4, noted, &four);
    if (result == qcclSuccess) result = sum_ranks(four, 4);
    if (result == qcclSuccess && job) result = sum_ranks(job, pair);
    keep_sentence(rank, result, noted);
    if (result == qcclSuccess) result = qcclCommDestroy(job);
    if (result == qcclSuccess) result = qcclCommDestroy(three);
    if (result == qcclSuccess) result = qcclCommDestroy(four);
    return result;
}

static void new_ranks_join_processes(void **state)
{
    const scenario_t scenario = {grow_twice, NULL, 0, -1, 0, 0, NULL, NULL};
    int statuses[size], rank;
    (void)state;
    play(&scenario, statuses);
    for (rank = 0; rank < size; rank++)
        if (statuses[rank] != 0 || shared->ranks[rank].result != qcclSuccess)
            fail_msg("rank %d: status %d, result %d, %s", rank, statuses[rank],
                     (int)shared->ranks[rank].result, shared->gathered[1] + rank * 512);
}

/* Rank 1 has no descriptor left for a connection to the rendezvous, which so never hears of it. */
static qcclResult_t grow_without_descriptors(int rank, qcclComm_t comm, shared_t *noted)
{
    qcclComm_t job = NULL, grown = NULL;
    qcclResult_t result = split_off(rank, comm, &job);
    int first = -1, last = -1, next;
    if (rank == 3 || result != qcclSuccess) return result;
    while (rank == 1 && (next = dup(0)) >= 0) {
        if (first < 0) first = next;
        last = next;
    }
    result = grow_to(rank, job, 3, noted, &grown);
    keep_sentence(rank, result, noted);
    for (next = first; first >= 0 && next <= last; next++) close(next);
    if (job) noted->ranks[rank].calls = sum_ranks(job, pair) == qcclSuccess; /* it goes on */
    return result;
}

static void a_rank_that_cannot_join_is_told_to_all(void **state)
{
    const scenario_t scenario = {grow_without_descriptors, NULL, 0, -1, 0, 0, NULL, NULL};
    int statuses[size], rank;
    (void)state;
    play(&scenario, statuses);
    for (rank = 0; rank < size; rank++) assert_int_equal(statuses[rank], 0);
    assert_int_equal(shared->ranks[1].result, qcclSystemError);
    assert_int_equal(shared->ranks[0].result, qcclRemoteError);
    assert_says(shared->gathered[1], "rank 1 could not join: ");
    assert_int_not_equal(shared->ranks[2].result, qcclSuccess);
    for (rank = 0; rank < pair; rank++) assert_int_equal(shared->ranks[rank].calls, 1);
}

/* Rank 3 does not come, so that the others wait until one of them dies. */
static qcclResult_t grow_in_vain(int rank, qcclComm_t comm, shared_t *noted)
{
    qcclComm_t job = NULL, grown = NULL;
    qcclResult_t result = split_off(rank, comm, &job);
    if (rank == 3) return result;
    noted->ranks[rank].calls = 1;
    if (result == qcclSuccess) result = grow_to(rank, job, 4, noted, &grown);
    keep_sentence(rank, result, noted);
    if (rank == 0) sleep_ms(1000); /* this process serves the rendezvous */
    return result;
}

static void kill_after_a_while(pid_t rank, shared_t *noted)
{
    int other;
    for (other = 0; other < 3; other++) await_calls(noted, other, 1);
    sleep_ms(500);
    kill(rank, SIGKILL);
}

static void kill_old_rank(const pid_t *ranks, shared_t *noted)
{
    kill_after_a_while(ranks[1], noted);
}

static void kill_new_rank(const pid_t *ranks, shared_t *noted)
{
    kill_after_a_while(ranks[2], noted);
}

static void check_death(int dead, void (*disturb)(const pid_t *, shared_t *))
{
    scenario_t scenario = {grow_in_vain, NULL, 0, -1, 0, 0, NULL, NULL};
    int statuses[size], rank;
    char part[16];
    scenario.disturb = disturb;
    play(&scenario, statuses);
    snprintf(part, sizeof part, "rank %d", dead);
    for (rank = 0; rank < 3; rank++) {
        if (rank == dead) continue;
        assert_int_equal(statuses[rank], 0);
        /* The new rank may hear only that rank 0, which knows the reason, has given up. */
        assert_int_not_equal(shared->ranks[rank].result, qcclSuccess);
        if (rank >= pair) continue;
        assert_true(shared->ranks[rank].result == qcclPeerLost ||
                    shared->ranks[rank].result == qcclRemoteError);
        assert_says(shared->gathered[1] + rank * 512, part);
    }
}

static void a_death_ends_the_wait(void **state)
{
    (void)state;
    check_death(1, kill_old_rank);
    check_death(2, kill_new_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_ranks_join_processes),
        cmocka_unit_test(a_death_ends_the_wait),
        cmocka_unit_test(a_rank_that_cannot_join_is_told_to_all),
        cmocka_unit_test(new_ranks_join_threads),
        cmocka_unit_test(disagreements_are_named),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_taken_number_is_told_to_all),
        cmocka_unit_test(an_abort_ends_the_wait_for_new_ranks),
    };
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
