/* Communicators of processes: what every rank is told when one of them dies, stops, is late, or
 * never comes. The parent starts the ranks, watches, and does no collectives itself. */
#include "api_kit.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { size = 4, count = 20000 };

/* Shared between parent and ranks. */
typedef struct {
    qcclUniqueId id;
    pthread_barrier_t barrier; /* of ranks alone, for the all-gather of InitOob */
    char gathered[size][512];
    struct {
        qcclResult_t created, result, destroyed;
        char sentence[sentence_bytes];
        int32_t peer;
        volatile int calls; /* that have succeeded */
        volatile int warnings;
    } ranks[size];
} shared_t;

typedef struct scenario scenario_t;
struct scenario {
    /* Runs in each rank's process between creation and destruction. */
    qcclResult_t (*body)(int rank, qcclComm_t comm, shared_t *shared);
    const char *inject;        /* QCCL_INJECT */
    double timeout;            /* of the config */
    int missing;               /* a rank that is not started; -1: none */
    int late_ms;               /* that rank 1 sleeps before it joins */
    int is_oob;
    void (*disturb)(const pid_t *ranks, shared_t *shared); /* the parent's part; may be NULL */
};

static shared_t *shared;

static int gather(const void *mine, void *all, size_t bytes, void *context)
{
    const int rank = *(int *)context;
    int from;
    if (bytes > sizeof shared->gathered[0]) return 1;
    memcpy(shared->gathered[rank], mine, bytes);
    pthread_barrier_wait(&shared->barrier);
    for (from = 0; from < size; from++)
        memcpy((char *)all + (size_t)from * bytes, shared->gathered[from], bytes);
    pthread_barrier_wait(&shared->barrier);
    return 0;
}

static void count_warning(int32_t level, const char *line, void *context)
{
    const int rank = *(int *)context;
    if (level == 1 && strstr(line, "has not come")) shared->ranks[rank].warnings++;
}

static void note(int rank, qcclComm_t comm, qcclResult_t result)
{
    qcclErrorInfo_t info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    shared->ranks[rank].result = result;
    shared->ranks[rank].peer = -1;
    if (result == qcclSuccess) return;
    strcpy(shared->ranks[rank].sentence, qcclGetLastError(comm));
    if (comm && qcclGetErrorInfo(comm, &info) == qcclSuccess) shared->ranks[rank].peer = info.peer;
}

static void be_rank(int rank, const scenario_t *scenario)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclOob_t oob = {gather, NULL};
    qcclComm_t comm = NULL;
    qcclResult_t created;
    oob.context = &rank;
    config.timeout = scenario->timeout;
    config.log.function = count_warning;
    config.log.context = &rank;
    if (scenario->inject) setenv("QCCL_INJECT", scenario->inject, 1);
    if (rank == 1) sleep_ms(scenario->late_ms);
    created = scenario->is_oob
                  ? qcclCommInitOob(&comm, size, rank, &oob, &config)
                  : qcclCommInitRankConfig(&comm, size, &shared->id, rank, &config);
    shared->ranks[rank].created = created;
    note(rank, comm, created == qcclSuccess ? scenario->body(rank, comm, shared) : created);
    shared->ranks[rank].destroyed = qcclCommDestroy(comm);
    _exit(0);
}

/* Runs the scenario and gives the ranks' exit statuses. */
static void play(const scenario_t *scenario, int statuses[size])
{
    pid_t pids[size];
    int rank;
    memset(shared, 0, sizeof *shared);
    {
        pthread_barrierattr_t attributes;
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared->barrier, &attributes, size);
    }
    assert_int_equal(qcclGetUniqueId(&shared->id), qcclSuccess);
    for (rank = 0; rank < size; rank++) {
        if (rank == scenario->missing) continue;
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] == 0) be_rank(rank, scenario);
    }
    if (scenario->disturb) scenario->disturb(pids, shared);
    for (rank = 0; rank < size; rank++)
        if (rank != scenario->missing) {
            const double begin = now_s();
            pid_t ended = 0;
            while (ended == 0 && now_s() - begin < 60) {
                ended = waitpid(pids[rank], &statuses[rank], WNOHANG);
                if (ended == 0) sleep_ms(5);
            }
            if (ended == 0) {
                kill(pids[rank], SIGKILL);
                fail_msg("rank %d hangs", rank);
            }
        }
}

static qcclResult_t sum_forever(int rank, qcclComm_t comm, shared_t *noted)
{
    float *values = malloc(count * sizeof *values);
    qcclResult_t result = qcclSuccess;
    int call, i;
    for (call = 1; call <= 200 && result == qcclSuccess; call++) {
        const int n = call % 3 ? count : 3;
        for (i = 0; i < n; i++) values[i] = (float)(rank + call);
        result = qcclAllReduce(values, values, (size_t)n, qcclFloat32, qcclSum, comm, NULL);
        for (i = 0; i < n && result == qcclSuccess; i++)
            if (values[i] != (float)(size * call + 6)) result = qcclInternalError;
        if (result == qcclSuccess) noted->ranks[rank].calls++;
    }
    free(values);
    return result;
}

static void check_all_succeeded(const int statuses[size])
{
    int rank;
    for (rank = 0; rank < size; rank++) {
        if (statuses[rank] != 0 || shared->ranks[rank].result != qcclSuccess)
            fail_msg("rank %d: status %d, result %d: %s", rank, statuses[rank],
                     (int)shared->ranks[rank].result, shared->ranks[rank].sentence);
        assert_int_equal(shared->ranks[rank].destroyed, qcclSuccess);
        assert_int_equal(shared->ranks[rank].calls, 200);
    }
}

/* All but `rank` have heard the same of it, and could end in good order. */
static void check_all_name(int rank, qcclResult_t result, const char *part)
{
    int other, first = rank == 0 ? 1 : 0;
    for (other = 0; other < size; other++) {
        if (other == rank) continue;
        if (shared->ranks[other].result != result)
            fail_msg("rank %d: %d: %s", other, (int)shared->ranks[other].result,
                     shared->ranks[other].sentence);
        assert_says(shared->ranks[other].sentence, part);
        assert_string_equal(shared->ranks[other].sentence, shared->ranks[first].sentence);
        assert_int_equal(shared->ranks[other].destroyed, qcclSuccess);
    }
}

static void processes_sum(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 0, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
}

static void processes_meet_over_the_caller_s_all_gather(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 1, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
}

static void a_rank_that_kills_itself_is_named(void **state)
{
    const scenario_t scenario = {sum_forever, "rank=2,call=100,kill", 0, -1, 0, 0, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    assert_true(WIFSIGNALED(statuses[2]) && WTERMSIG(statuses[2]) == SIGKILL);
    assert_int_equal(shared->ranks[2].calls, 99);
    check_all_name(2, qcclPeerLost, "rank 2 (pid ");
    assert_int_equal(shared->ranks[0].peer, 2);
}

static void kill_rank_3(const pid_t *ranks, shared_t *noted)
{
    while (noted->ranks[3].calls < 20) sleep_ms(1);
    kill(ranks[3], SIGKILL);
}

static void a_killed_rank_is_named(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 0, kill_rank_3};
    int statuses[size] = {0};
    double begin = now_s();
    (void)state;
    play(&scenario, statuses);
    if (!WIFSIGNALED(statuses[3])) return; /* it was done before the signal came */
    assert_true(now_s() - begin < 20);
    check_all_name(3, qcclPeerLost, "rank 3 (pid ");
}

/* The rank that holds the failure's line, and made the id, is no special case. */
static void kill_rank_0(const pid_t *ranks, shared_t *noted)
{
    while (noted->ranks[0].calls < 20) sleep_ms(1);
    kill(ranks[0], SIGKILL);
}

static void rank_0_is_no_special_case(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 0, kill_rank_0};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    if (!WIFSIGNALED(statuses[0])) return;
    check_all_name(0, qcclPeerLost, "rank 0 (pid ");
}

static void stop_rank_1(const pid_t *ranks, shared_t *noted)
{
    while (noted->ranks[1].calls < 20) sleep_ms(1);
    kill(ranks[1], SIGSTOP);
    sleep_ms(1500);
    kill(ranks[1], SIGCONT);
}

static void a_stopped_rank_costs_time_only(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0, -1, 0, 0, stop_rank_1};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
}

static void a_late_rank_costs_time_only(void **state)
{
    const scenario_t scenario = {sum_forever, "rank=1,call=7,delay=700ms", 0, -1, 700, 0, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
}

static void a_revoking_rank_is_named(void **state)
{
    const scenario_t scenario = {sum_forever, "rank=1,call=50,revoke", 0, -1, 0, 0, NULL};
    int statuses[size] = {0};
    (void)state;
    play(&scenario, statuses);
    check_all_name(1, qcclRevoked, "rank 1 revoked the communicator");
    assert_int_equal(shared->ranks[1].result, qcclRevoked);
}

static void a_rank_that_never_joins_is_named(void **state)
{
    const scenario_t scenario = {sum_forever, NULL, 0.7, 2, 0, 0, NULL};
    int statuses[size] = {0}, rank;
    (void)state;
    play(&scenario, statuses);
    for (rank = 0; rank < size; rank++) {
        if (rank == 2) continue;
        assert_int_equal(shared->ranks[rank].created, qcclTimeout);
        assert_says(shared->ranks[rank].sentence, "rank 2");
    }
}

static qcclResult_t stay_away(int rank, qcclComm_t comm, shared_t *noted)
{
    float value = 0;
    (void)noted;
    if (rank == 3) {
        sleep_ms(1500);
        return qcclSuccess;
    }
    return qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comm, NULL);
}

static void a_live_rank_that_does_not_come_is_named(void **state)
{
    const scenario_t scenario = {stay_away, NULL, 0.5, -1, 0, 0, NULL};
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
    const scenario_t scenario = {disagree, NULL, 0, -1, 0, 0, NULL};
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

/* Longer than a wait lasts before it is worth a warning. */
static void a_very_late_rank_costs_one_warning(void **state)
{
    const scenario_t scenario = {sum_forever, "rank=1,call=7,delay=33s", 0, -1, 0, 0, NULL};
    int statuses[size] = {0}, rank, warnings = 0;
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
    for (rank = 0; rank < size; rank++) warnings += shared->ranks[rank].warnings;
    assert_int_equal(warnings, 1);
}

static int make(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

/* usage: comm_test [slow] */
int main(int argc, char **argv)
{
    const struct CMUnitTest slow_tests[] = {
        cmocka_unit_test(a_very_late_rank_costs_one_warning),
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
        cmocka_unit_test(a_live_rank_that_does_not_come_is_named),
        cmocka_unit_test(the_first_rank_that_differs_is_named),
    };
    if (argc > 1 && strcmp(argv[1], "slow") == 0)
        return cmocka_run_group_tests(slow_tests, make, NULL);
    return cmocka_run_group_tests(tests, make, NULL);
}
