/* Tests handles that end while other threads use them: each call either does
 * its work or is refused, and exactly one thread ends a handle. */
#include "tests/api/process_kit.h"

#include "tests/kit/sanitizer.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { rounds = 40, values_of_call = 1000, calls_after_end = 100, most_threads = 8 };

/* The buffers of the threads' calls; the other rank waits for these calls. */
static float summands[most_threads][values_of_call];

/* Threads that use a handle while another thread ends it. */
typedef struct race race_t;
typedef struct user user_t;
struct user {
    race_t *race;
    qcclComm_t comm;
    qcclStream_t stream;
    qcclCodec_t codec;
    float *values;
    qcclResult_t (*use)(const user_t *user);
    pthread_t thread;
    qcclResult_t wrong; /* a result that no call should have, else qcclSuccess */
};
struct race {
    user_t users[most_threads];
    int n;
    atomic_long calls; /* of all users */
    atomic_int is_over;
};

static user_t *add_user(race_t *race, qcclResult_t (*use)(const user_t *user))
{
    user_t *user = &race->users[race->n];
    user->race = race;
    user->values = summands[race->n++];
    user->use = use;
    return user;
}

static void add_user_of_comm(race_t *race, qcclComm_t comm, qcclResult_t (*use)(const user_t *user))
{
    add_user(race, use)->comm = comm;
}

/* Uses the handle until it has ended, and for a while after. */
static void *use_for_ever(void *argument)
{
    user_t *user = argument;
    int refused = 0;
    while (refused < calls_after_end && user->wrong == qcclSuccess) {
        const int was_over = atomic_load(&user->race->is_over);
        const qcclResult_t result = user->use(user);
        const int is_refused = result == qcclInvalidUsage;
        if (was_over && result == qcclSuccess)
            user->wrong = qcclInternalError;
        else if (was_over ? !is_refused
                          : !is_refused && result != qcclSuccess && result != qcclRevoked &&
                                result != qcclInProgress)
            user->wrong = result;
        if (was_over) refused++;
        atomic_fetch_add(&user->race->calls, 1);
    }
    return NULL;
}

/* Starts the users and returns in the middle of their calls. */
static void start_race(race_t *race)
{
    const long calls = rand() % 300;
    int i;
    for (i = 0; i < race->n; i++)
        if (pthread_create(&race->users[i].thread, NULL, use_for_ever, &race->users[i]) != 0)
            abort();
    while (atomic_load(&race->calls) < calls) sched_yield();
}

/* Tells the users that the handle has ended, and joins them. */
static void finish_race(race_t *race)
{
    int i;
    atomic_store(&race->is_over, 1);
    for (i = 0; i < race->n; i++) pthread_join(race->users[i].thread, NULL);
}

static void check_race(const race_t *race)
{
    int i;
    for (i = 0; i < race->n; i++)
        if (race->users[i].wrong != qcclSuccess)
            fail_msg("thread %d: result %d", i, (int)race->users[i].wrong);
}

static qcclResult_t sum(const user_t *user)
{
    return qcclAllReduce(user->values, user->values, values_of_call, qcclFloat32, qcclSum,
                         user->comm, NULL);
}

/* Makes the calls that any thread may make at any time. */
static qcclResult_t ask(const user_t *user)
{
    qcclErrorInfo_t info;
    qcclCommStats_t stats;
    qcclResult_t result, all = qcclSuccess;
    size_t bytes = 0;
    int number = 0;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    (void)qcclGetLastError(user->comm);
    result = qcclCommGetAsyncError(user->comm, &all);
    if (result == qcclSuccess) result = qcclCommCount(user->comm, &number);
    if (result == qcclSuccess) result = qcclCommUserRank(user->comm, &number);
    if (result == qcclSuccess) result = qcclGetErrorInfo(user->comm, &info);
    if (result == qcclSuccess) result = qcclCommGetStats(user->comm, &stats);
    if (result == qcclSuccess) result = qcclExplain(user->comm, "barrier", NULL, &bytes);
    return result;
}

typedef struct {
    qcclComm_t comm;
    qcclResult_t (*end)(qcclComm_t comm);
    pthread_barrier_t *start;
    pthread_t thread;
    qcclResult_t result;
} ender_t;

static void *end_it(void *argument)
{
    ender_t *ender = argument;
    pthread_barrier_wait(ender->start);
    ender->result = ender->end(ender->comm);
    return NULL;
}

/* Ends the communicator from n threads at once. Returns how many of them did
 * so; -1: a thread got an error other than qcclInvalidUsage. */
static int end_from_threads(qcclComm_t comm, qcclResult_t (*const ends[])(qcclComm_t), int n)
{
    ender_t enders[most_threads];
    pthread_barrier_t together;
    int i, ended = 0;
    pthread_barrier_init(&together, NULL, (unsigned)n);
    for (i = 0; i < n; i++) {
        enders[i].comm = comm;
        enders[i].end = ends[i];
        enders[i].start = &together;
        if (pthread_create(&enders[i].thread, NULL, end_it, &enders[i]) != 0) abort();
    }
    for (i = 0; i < n; i++) {
        pthread_join(enders[i].thread, NULL);
        if (enders[i].result != qcclSuccess && enders[i].result != qcclInvalidUsage) ended = -1;
        if (enders[i].result == qcclSuccess && ended >= 0) ended++;
    }
    pthread_barrier_destroy(&together);
    return ended;
}

/* A watchdog aborts the ranks without knowing where their workers are. */
static void aborted_under_a_looping_worker(void **state)
{
    int round, rank;
    (void)state;
    for (round = 0; round < rounds; round++) {
        world_t world = round % 2 ? make_world(2) : join_world(2, NULL);
        qcclResult_t aborted[2];
        race_t race = {.n = 0};
        for (rank = 0; rank < 2; rank++) add_user_of_comm(&race, world.comms[rank], sum);
        add_user_of_comm(&race, world.comms[0], ask);
        start_race(&race);
        for (rank = 0; rank < 2; rank++) aborted[rank] = qcclCommAbort(world.comms[rank]);
        finish_race(&race);
        check_race(&race);
        for (rank = 0; rank < 2; rank++) {
            assert_int_equal(aborted[rank], qcclSuccess);
            assert_int_equal(qcclCommAbort(world.comms[rank]), qcclInvalidUsage);
        }
    }
}

/* Destroying is refused while the worker is inside a call, and succeeds when
 * it happens to be outside. */
static void destroyed_between_calls_of_a_looping_worker(void **state)
{
    int round;
    (void)state;
    for (round = 0; round < rounds / 4; round++) {
        world_t world = make_world(1);
        qcclResult_t destroyed;
        race_t race = {.n = 0};
        add_user_of_comm(&race, world.comms[0], sum);
        add_user_of_comm(&race, world.comms[0], ask);
        start_race(&race);
        do destroyed = qcclCommDestroy(world.comms[0]);
        while (destroyed == qcclInvalidUsage &&
               strstr(qcclGetLastError(NULL), "another thread is inside"));
        finish_race(&race);
        assert_int_equal(destroyed, qcclSuccess);
        check_race(&race);
        assert_int_equal(qcclCommDestroy(world.comms[0]), qcclInvalidUsage);
        assert_says(qcclGetLastError(NULL), "has been destroyed");
    }
}

static void one_of_many_ends_it(void **state)
{
    qcclResult_t (*const ends[4])(qcclComm_t) = {qcclCommAbort, qcclCommAbort, qcclCommDestroy,
                                                 qcclCommDestroy};
    int round, first, n;
    (void)state;
    for (round = 0; round < rounds; round++)
        for (first = 0; first < 3; first++) { /* aborts; both; destroys */
            world_t world = make_world(2);
            n = end_from_threads(world.comms[0], &ends[first], 2);
            assert_int_equal(n, 1);
            assert_int_equal(qcclBarrier(world.comms[0], NULL), qcclInvalidUsage);
            assert_int_equal(end_from_threads(world.comms[1], ends, 4), 1);
        }
}

/* A thread that waits inside a call returns, whichever thread aborts first. */
static void aborted_by_many_under_a_thread(void **state)
{
    qcclResult_t (*const ends[3])(qcclComm_t) = {qcclCommAbort, qcclCommAbort, qcclCommAbort};
    int round;
    (void)state;
    for (round = 0; round < 10; round++) {
        world_t world = make_world(2);
        waiter_t waiter;
        start_waiter(&waiter, world.comms[0]);
        assert_int_equal(end_from_threads(world.comms[0], ends, 3), 1);
        check_waiter(&waiter, qcclRevoked, "rank 0 aborted the communicator");
        assert_int_equal(qcclCommDestroy(world.comms[1]), qcclSuccess);
    }
}

static qcclResult_t use_stream(const user_t *user)
{
    static _Thread_local unsigned char encoded[8192];
    size_t written = 0;
    qcclResult_t result = qcclStreamQuery(user->stream);
    if (result == qcclSuccess)
        result = qcclCodecEncode(user->codec, summands[0], 100, qcclFloat32, encoded,
                                 sizeof encoded, &written, user->stream);
    if (result == qcclSuccess) result = qcclStreamSynchronize(user->stream);
    return result;
}

static void a_stream_destroyed_under_its_users(void **state)
{
    qcclCodec_t codec = NULL;
    int round, i;
    (void)state;
    assert_int_equal(qcclCodecCreate(&codec, "int8"), qcclSuccess);
    for (round = 0; round < rounds; round++) {
        qcclStream_t stream = NULL;
        qcclResult_t destroyed;
        race_t race = {.n = 0};
        assert_int_equal(qcclStreamCreate(&stream), qcclSuccess);
        for (i = 0; i < 3; i++) {
            user_t *user = add_user(&race, use_stream);
            user->stream = stream;
            user->codec = codec;
        }
        start_race(&race);
        destroyed = qcclStreamDestroy(stream);
        finish_race(&race);
        assert_int_equal(destroyed, qcclSuccess);
        check_race(&race);
        assert_int_equal(qcclStreamDestroy(stream), qcclInvalidUsage);
    }
    assert_int_equal(qcclCodecDestroy(codec), qcclSuccess);
}

static qcclResult_t use_codec(const user_t *user)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    size_t bytes = 0;
    const qcclResult_t result = qcclCodecMaxEncodedBytes(user->codec, 100, qcclFloat32, &bytes);
    config.codec = user->codec;
    if (result != qcclSuccess) return result;
    if (bytes == 0) return qcclInternalError;
    return qcclAllReduceConfig(user->values, user->values, values_of_call, qcclFloat32, qcclSum,
                               user->comm, NULL, &config);
}

static void a_codec_destroyed_under_its_users(void **state)
{
    world_t worlds[3];
    int round, i;
    (void)state;
    for (i = 0; i < 3; i++) worlds[i] = make_world(1);
    for (round = 0; round < rounds; round++) {
        qcclCodec_t codec = NULL;
        qcclResult_t destroyed;
        race_t race = {.n = 0};
        assert_int_equal(qcclCodecCreate(&codec, "int4:block=64"), qcclSuccess);
        for (i = 0; i < 3; i++) {
            user_t *user = add_user(&race, use_codec);
            user->comm = worlds[i].comms[0];
            user->codec = codec;
        }
        start_race(&race);
        destroyed = qcclCodecDestroy(codec);
        finish_race(&race);
        assert_int_equal(destroyed, qcclSuccess);
        check_race(&race);
        assert_int_equal(qcclCodecDestroy(codec), qcclInvalidUsage);
    }
    for (i = 0; i < 3; i++) end_world(&worlds[i]);
}

/* Rank 0 is aborted under its worker; the calls of the other ranks say so. */
static qcclResult_t abort_rank_0(int rank, qcclComm_t comm, shared_t *noted)
{
    race_t race = {.n = 0};
    qcclResult_t result;
    (void)noted;
    add_user_of_comm(&race, comm, sum);
    if (rank != 0) {
        do result = sum(&race.users[0]);
        while (result == qcclSuccess);
        return result;
    }
    srand((unsigned)getpid());
    start_race(&race);
    result = qcclCommAbort(comm);
    finish_race(&race);
    return result == qcclSuccess ? race.users[0].wrong : result;
}

static void processes(void **state)
{
    scenario_t scenario;
    int statuses[size], round, rank;
    (void)state;
    /* A sanitizer's lock may be held when a process of several threads
     * forks. */
    if (UNDER_ADDRESS_SANITIZER || UNDER_THREAD_SANITIZER) skip();
    memset(&scenario, 0, sizeof scenario);
    scenario.body = abort_rank_0;
    scenario.missing = -1;
    for (round = 0; round < 20; round++) {
        play(&scenario, statuses);
        for (rank = 0; rank < size; rank++) {
            assert_int_equal(statuses[rank], 0);
            assert_int_equal(shared->ranks[rank].result, rank == 0 ? qcclSuccess : qcclRevoked);
            assert_int_equal(shared->ranks[rank].destroyed,
                             rank == 0 ? qcclInvalidUsage : qcclSuccess);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aborted_under_a_looping_worker),
        cmocka_unit_test(destroyed_between_calls_of_a_looping_worker),
        cmocka_unit_test(one_of_many_ends_it),
        cmocka_unit_test(aborted_by_many_under_a_thread),
        cmocka_unit_test(a_stream_destroyed_under_its_users),
        cmocka_unit_test(a_codec_destroyed_under_its_users),
        cmocka_unit_test_setup(processes, share_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
