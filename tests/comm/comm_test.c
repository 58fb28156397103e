/* Tests communicators of processes: every rank gets the same error when a rank
 * dies, stops, is late or never joins. The parent starts the ranks and watches;
 * it makes no collective calls. */
#include "tests/api/process_kit.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void processes_sum(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 0, NULL, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
}

static void processes_meet_over_the_caller_s_all_gather(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 1, NULL, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
}

static void a_rank_that_kills_itself_is_named(void **state)
{
    const scenario_t scenario = {sum_forever, "rank=2,call=100,kill", 0, -1, 0, 0, NULL, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    assert_true(WIFSIGNALED(statuses[2]) && WTERMSIG(statuses[2]) == SIGKILL);
    assert_int_equal(shared->ranks[2].calls, 99);
    check_all_name(2, qcclPeerLost, "rank 2 (pid ");
    assert_int_equal(warnings_with("the communicator has failed: rank 2 (pid "), 1);
    assert_int_equal(warnings_with(""), 1);
    assert_int_equal(shared->ranks[0].peer, 2);
}

/* Plays the scenario until the signal meets the rank in its calls: on a busy machine it may come
 * after them. Returns how long the last play took. */
static double play_until_killed(const scenario_t *scenario, int rank)
{
    int tries;
    for (tries = 0; tries < 100; tries++) {
        int statuses[size] = {0};
        const double begin = now_s();
        play(scenario, statuses);
        if (WIFSIGNALED(statuses[rank]) && shared->ranks[rank].calls + 1 < calls_of_body)
            return now_s() - begin;
    }
    fail_msg("rank %d is never killed in its calls", rank);
    return 0;
}

static void kill_rank_3(const pid_t *ranks, shared_t *noted)
{
    await_calls(noted, 3, 20);
    kill(ranks[3], SIGKILL);
}

static void a_killed_rank_is_named(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 0, kill_rank_3, NULL};
    (void)state;
    assert_true(play_until_killed(&scenario, 3) < 20);
    check_all_name(3, qcclPeerLost, "rank 3 (pid ");
}

/* Rank 0 holds the shared error record and made the unique id; its death is
 * reported like any other. */
static void kill_rank_0(const pid_t *ranks, shared_t *noted)
{
    await_calls(noted, 0, 20);
    kill(ranks[0], SIGKILL);
}

static void rank_0_is_no_special_case(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 0, kill_rank_0, NULL};
    (void)state;
    (void)play_until_killed(&scenario, 0);
    check_all_name(0, qcclPeerLost, "rank 0 (pid ");
}

static void stop_rank_1(const pid_t *ranks, shared_t *noted)
{
    await_calls(noted, 1, 20);
    kill(ranks[1], SIGSTOP);
    sleep_ms(1500);
    kill(ranks[1], SIGCONT);
}

static void a_stopped_rank_costs_time_only(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 0, stop_rank_1, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
}

static void a_late_rank_costs_time_only(void **state)
{
    const scenario_t scenario = {sum_forever, "rank=1,call=7,delay=700ms", 0, -1, 700, 0, NULL,
                                 NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
}

static void a_revoking_rank_is_named(void **state)
{
    const scenario_t scenario = {sum_forever, "rank=1,call=50,revoke", 0, -1, 0, 0, NULL, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_name(1, qcclRevoked, "rank 1 revoked the communicator");
    assert_int_equal(shared->ranks[1].result, qcclRevoked);
}

static void a_rank_that_never_joins_is_named(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 2, 2, 0, 0, NULL, NULL};
    int statuses[size] = {0}, rank;
    (void)state;
    play(&scenario, statuses);
    for (rank = 0; rank < size; rank++) {
        if (rank == 2) continue;
        assert_int_equal(shared->ranks[rank].created, qcclTimeout);
        assert_says(shared->ranks[rank].sentence, "rank 2");
    }
}

static void misspell(int rank)
{
    setenv("QCCL_CODAC", "int8", 1);
    if (rank >= 2) setenv("QCCL_ALGORITHM", "ring", 1);
}

static void ranks_that_know_the_same_warn_once(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 0, NULL, misspell};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
    assert_int_equal(shared->ranks[0].warnings, 1);
    assert_int_equal(shared->ranks[2].warnings, 2);
    assert_int_equal(warnings_with("QCCL_CODAC"), 2);
    assert_int_equal(warnings_with("QCCL_ALGORITHM"), 1);
    assert_int_equal(warnings_with(""), 3);
}

static void become_nobody(int rank)
{
    if (rank == 2 && setuid(65534) != 0) abort();
}

static void a_rank_of_another_user_is_named(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 0, NULL, become_nobody};
    int statuses[size] = {0}, rank;
    const double begin = now_s();
    (void)state;
    if (geteuid() != 0) skip(); /* only root can change to another user */
    play(&scenario, statuses);
    for (rank = 0; rank < size; rank++) {
        assert_int_equal(shared->ranks[rank].created, qcclMismatch);
        assert_says(shared->ranks[rank].sentence, "rank 2 runs as user 65534, rank 0 as user 0: ");
    }
    assert_true(now_s() - begin < 10);
}

static qcclResult_t stay_away(int rank, qcclComm_t comm, shared_t *noted)
{
    float value = 0;
    int other;
    if (rank == 3) {
        for (other = 0; other < 3; other++)
            while (noted->ranks[other].result == qcclSuccess) sleep_ms(1);
        return qcclSuccess;
    }
    return qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comm, NULL);
}

static void a_live_rank_that_does_not_come_is_named(void **state)
{
    const scenario_t scenario = {stay_away, NULL, 2, -1, 0, 0, NULL, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_name(3, qcclTimeout, "rank 3 did not come to all_reduce, call 1");
}

static qcclResult_t disagree(int rank, qcclComm_t comm, shared_t *noted)
{
    static float values[count];
    (void)noted;
    return qcclAllReduce(values, values, rank >= 2 ? count - (size_t)rank : count, qcclFloat32,
                         qcclSum, comm, NULL);
}

static void the_first_rank_that_differs_is_named(void **state)
{
    const scenario_t scenario = {disagree, NULL, 0, -1, 0, 0, NULL, NULL};
    int statuses[size] = {0}, rank;
    (void)state;
    play(&scenario, statuses);
    for (rank = 0; rank < size; rank++) {
        assert_int_equal(shared->ranks[rank].result, qcclMismatch);
        assert_int_equal(shared->ranks[rank].peer, 2);
        assert_string_equal(shared->ranks[rank].sentence, shared->ranks[0].sentence);
    }
    assert_says(shared->ranks[0].sentence, "19998");
    assert_says(shared->ranks[0].sentence, "20000");
}

/* The rank is late by more than the time after which a wait is worth a
 * warning. */
static void a_very_late_rank_costs_one_warning(void **state)
{
    const scenario_t scenario = {sum_forever, "rank=1,call=7,delay=33s", 0, -1, 0, 0, NULL, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
    assert_int_equal(warnings_with("rank 1 (pid "), 1);
    assert_int_equal(warnings_with("has not come to all_reduce, call 7, for 30 s"), 1);
    assert_int_equal(warnings_with(""), 1);
}

/* One of the waiting ranks warns, after 5 s, for all of them. */
static void a_rank_that_joins_late_costs_one_warning(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 6000, 0, NULL, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
    assert_int_equal(warnings_with("waiting for rank 1 of 4 (5 s so far)"), 1);
    assert_int_equal(shared->ranks[0].warnings, 1);
    assert_int_equal(warnings_with(""), 1);
}

/* usage: comm_test [slow] */
int main(int argc, char **argv)
{
    const struct CMUnitTest slow_tests[] = {
        cmocka_unit_test(a_very_late_rank_costs_one_warning),
        cmocka_unit_test(a_rank_that_joins_late_costs_one_warning),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_sum),
        cmocka_unit_test(processes_meet_over_the_caller_s_all_gather),
        cmocka_unit_test(a_rank_that_kills_itself_is_named),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(rank_0_is_no_special_case),
        cmocka_unit_test(a_stopped_rank_costs_time_only),
        cmocka_unit_test(a_late_rank_costs_time_only),
        cmocka_unit_test(a_revoking_rank_is_named),
        cmocka_unit_test(a_rank_that_never_joins_is_named),
        cmocka_unit_test(ranks_that_know_the_same_warn_once),
        cmocka_unit_test(a_rank_of_another_user_is_named),
        cmocka_unit_test(a_live_rank_that_does_not_come_is_named),
        cmocka_unit_test(the_first_rank_that_differs_is_named),
    };
    if (argc > 1 && strcmp(argv[1], "slow") == 0)
        return cmocka_run_group_tests(slow_tests, share_memory, NULL);
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
