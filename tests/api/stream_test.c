/* Tests host streams: calls return at once, run in the order in which they were
 * made, and an error in them is reported once. One thread has calls on several
 * communicators in flight, in orders that differ between ranks. */
#include "process_kit.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { pair = 2, rounds = 20, comms = 3, each = 60 };

/* Every rank makes its calls on two streams in turn, with blocking calls in
 * between. The order is the same on all ranks, because otherwise the calls
 * would not fit together. */
static qcclResult_t in_turn(int rank, qcclComm_t comm, void *context)
{
    float *vector = malloc(count * sizeof *vector);
    float small[rounds];
    qcclStream_t streams[2] = {NULL, NULL};
    qcclResult_t result = qcclSuccess;
    int round, at;
    for (at = 0; at < count; at++) vector[at] = (float)(rank + 1);
    for (at = 0; at < 2; at++) qcclStreamCreate(&streams[at]);
    for (round = 0; round < rounds && result == qcclSuccess; round++) {
        small[round] = (float)round;
        /* After the first round all ranks hold the same values, and a maximum
         * keeps these. */
        result = qcclAllReduce(vector, vector, count, qcclFloat32, round == 0 ? qcclSum : qcclMax,
                               comm, streams[(round + rank) % 2]);
        if (result == qcclSuccess && round % 3 == 0)
            result = qcclAllReduce(&small[round], &small[round], 1, qcclFloat32, qcclSum, comm,
                                   streams[round % 2]);
        if (result == qcclSuccess && round % 5 == 0) result = qcclBarrier(comm, NULL);
    }
    for (at = 0; at < 2; at++)
        if (result == qcclSuccess) result = qcclStreamSynchronize(streams[at]);
    for (at = 0; at < count; at++)
        if (vector[at] != 3) ((int *)context)[rank]++;
    for (round = 0; round < rounds; round += 3)
        if (small[round] != (float)(2 * round)) ((int *)context)[rank]++;
    for (at = 0; at < 2; at++) qcclStreamDestroy(streams[at]);
    free(vector);
    return result;
}

static void calls_happen_in_the_order_in_which_they_were_made(void **state)
{
    (void)state;
    check_in_both_worlds(pair, in_turn);
}

/* One thread drives all ranks, which is impossible with blocking calls. */
static void one_thread_can_drive_all_ranks(void **state)
{
    world_t world = make_world(pair);
    qcclStream_t streams[pair];
    float values[pair] = {1, 2};
    qcclResult_t async = qcclInternalError;
    int rank;
    (void)state;
    for (rank = 0; rank < pair; rank++) {
        assert_int_equal(qcclStreamCreate(&streams[rank]), qcclSuccess);
        assert_int_equal(qcclAllReduce(&values[rank], &values[rank], 1, qcclFloat32, qcclSum,
                                       world.comms[rank], streams[rank]),
                         qcclSuccess);
        if (rank == 0) {
            /* The other ranks have not come, so the call cannot be done. */
            assert_int_equal(qcclMemAlloc(NULL, 1), qcclInvalidArgument);
            assert_int_equal(qcclStreamQuery(streams[0]), qcclInProgress);
            assert_string_equal(qcclGetLastError(NULL), "pointer_out is NULL"); /* kept */
            assert_int_equal(qcclCommGetAsyncError(world.comms[0], &async), qcclSuccess);
            assert_int_equal(async, qcclInProgress);
        }
    }
    for (rank = 0; rank < pair; rank++) {
        assert_int_equal(qcclStreamSynchronize(streams[rank]), qcclSuccess);
        assert_int_equal(qcclStreamQuery(streams[rank]), qcclSuccess);
        assert_true(values[rank] == 3);
    }
    /* Finalize waits for streams; destroying a stream waits for its work. */
    for (rank = 0; rank < pair; rank++)
        assert_int_equal(qcclBarrier(world.comms[rank], streams[rank]), qcclSuccess);
    for (rank = 0; rank < pair; rank++) {
        assert_int_equal(qcclCommFinalize(world.comms[rank]), qcclSuccess);
        assert_int_equal(qcclCommGetAsyncError(world.comms[rank], &async), qcclSuccess);
        assert_int_equal(async, qcclSuccess);
        assert_int_equal(qcclStreamDestroy(streams[rank]), qcclSuccess);
    }
    end_world(&world);
}

/* Two communicators and two streams, crosswise: no order of their calls may
 * deadlock. */
static void streams_and_communicators_may_cross(void **state)
{
    world_t first = make_world(pair), second = make_world(pair);
    qcclStream_t streams[2 * pair];
    float values[2][pair][rounds];
    int rank, round, i;
    (void)state;
    for (i = 0; i < 2 * pair; i++) assert_int_equal(qcclStreamCreate(&streams[i]), qcclSuccess);
    for (round = 0; round < rounds; round++)
        for (rank = 0; rank < pair; rank++) {
            qcclStream_t *own = &streams[2 * rank];
            values[0][rank][round] = values[1][rank][round] = 1;
            assert_int_equal(qcclAllReduce(&values[0][rank][round], &values[0][rank][round], 1,
                                           qcclFloat32, qcclSum, first.comms[rank], own[round % 2]),
                             qcclSuccess);
            assert_int_equal(qcclAllReduce(&values[1][rank][round], &values[1][rank][round], 1,
                                           qcclFloat32, qcclSum, second.comms[rank],
                                           own[(round + 1) % 2]),
                             qcclSuccess);
        }
    for (i = 0; i < 2 * pair; i++) {
        assert_int_equal(qcclStreamSynchronize(streams[i]), qcclSuccess);
        assert_int_equal(qcclStreamDestroy(streams[i]), qcclSuccess);
    }
    for (rank = 0; rank < pair; rank++)
        for (round = 0; round < rounds; round++)
            assert_true(values[0][rank][round] == 2 && values[1][rank][round] == 2);
    end_world(&first);
    end_world(&second);
}

static void an_error_is_told_once(void **state)
{
    world_t world = make_world(pair);
    qcclStream_t streams[pair];
    float values[pair][2] = {{0}};
    int rank;
    (void)state;
    for (rank = 0; rank < pair; rank++) {
        assert_int_equal(qcclStreamCreate(&streams[rank]), qcclSuccess);
        assert_int_equal(qcclAllReduce(values[rank], values[rank], 1 + (size_t)rank, qcclFloat32,
                                       qcclSum, world.comms[rank], streams[rank]),
                         qcclSuccess);
    }
    for (rank = 0; rank < pair; rank++) {
        assert_int_equal(qcclStreamSynchronize(streams[rank]), qcclMismatch);
        assert_says(qcclGetLastError(NULL), "rank 1");
        assert_int_equal(qcclStreamSynchronize(streams[rank]), qcclSuccess);
        assert_says(qcclGetLastError(world.comms[rank]), "rank 1");
        /* The communicator has failed, the stream has not. */
        assert_int_equal(qcclBarrier(world.comms[rank], streams[rank]), qcclMismatch);
        assert_int_equal(qcclStreamQuery(streams[rank]), qcclSuccess);
        assert_int_equal(qcclStreamDestroy(streams[rank]), qcclSuccess);
    }
    end_world(&world);
}

static volatile sig_atomic_t on_main;
static pthread_t main_thread;
static void note_thread(int number)
{
    (void)number;
    on_main = pthread_equal(pthread_self(), main_thread) ? 1 : -1;
}

/* A signal to the process must be handled by one of the program's own
 * threads. */
static void signals_are_the_program_s(void **state)
{
    struct sigaction action, before;
    qcclStream_t stream = NULL;
    sigset_t set, old;
    (void)state;
    main_thread = pthread_self();
    memset(&action, 0, sizeof action);
    action.sa_handler = note_thread;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(qcclStreamCreate(&stream), qcclSuccess);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    kill(getpid(), SIGUSR1); /* main blocks it; another thread could take it */
    sleep_ms(20);
    assert_int_equal(on_main, 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    assert_int_equal(on_main, 1);
    sigaction(SIGUSR1, &before, NULL);
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
}

static void streams_may_be_pinned(void **state)
{
    qcclStream_t stream = NULL;
    (void)state;
    setenv("QCCL_PROGRESS_CPU", "0", 1);
    assert_int_equal(qcclStreamCreate(&stream), qcclSuccess);
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
    setenv("QCCL_PROGRESS_CPU", "999999", 1);
    stream = NULL;
    assert_int_equal(qcclStreamCreate(&stream), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "QCCL_PROGRESS_CPU=999999");
    assert_null(stream);
    unsetenv("QCCL_PROGRESS_CPU");
    assert_int_equal(qcclStreamDestroy(NULL), qcclSuccess);
    assert_int_equal(qcclStreamCreate(NULL), qcclInvalidArgument);
}

/* ---- Several communicators in one thread */

/* One communicator's calls of one rank, of which one is in flight at a time. */
typedef struct {
    qcclComm_t comm;
    qcclStream_t stream;
    float *values;
    int made;
} lane_t;

static qcclResult_t open_lanes(lane_t lanes[comms], qcclComm_t comm)
{
    qcclResult_t result = qcclSuccess;
    int i;
    memset(lanes, 0, comms * sizeof *lanes);
    for (i = 0; i < comms && result == qcclSuccess; i++) {
        lanes[i].values = malloc(count * sizeof *lanes[i].values);
        result = qcclCommDup(comm, &lanes[i].comm, NULL);
        if (result == qcclSuccess) result = qcclStreamCreate(&lanes[i].stream);
    }
    return result;
}

static qcclResult_t close_lanes(lane_t lanes[comms])
{
    qcclResult_t result = qcclSuccess;
    int i;
    for (i = 0; i < comms; i++) {
        const qcclResult_t ended = qcclCommDestroy(lanes[i].comm);
        if (result == qcclSuccess) result = ended;
        qcclStreamDestroy(lanes[i].stream);
        free(lanes[i].values);
    }
    return result;
}

static int lane_count(int made) { return made % 4 == 0 ? 1 : count; }

static qcclResult_t begin(lane_t *lane, int rank, int which, qcclRequest_t *request)
{
    const int n = lane_count(lane->made);
    qcclResult_t result;
    int i;
    for (i = 0; i < n; i++) lane->values[i] = (float)(rank + which + lane->made);
    result = qcclAllReduce(lane->values, lane->values, (size_t)n, qcclFloat32, qcclSum, lane->comm,
                           lane->stream);
    return result == qcclSuccess ? qcclRequestRecord(lane->stream, request) : result;
}

static int is_right(const lane_t *lane, int which)
{
    const float sum = (float)(size * (which + lane->made) + size * (size - 1) / 2);
    int i;
    for (i = 0; i < lane_count(lane->made); i++)
        if (lane->values[i] != sum) return 0;
    return 1;
}

/* Every rank begins with another communicator, and goes on with whichever is done first. */
static qcclResult_t cross(int rank, qcclComm_t comm, shared_t *noted)
{
    lane_t lanes[comms];
    qcclRequest_t requests[comms] = {NULL};
    qcclResult_t result = open_lanes(lanes, comm), ended;
    int i, which = 0;
    for (i = 0; i < comms && result == qcclSuccess; i++) {
        which = (i * (1 + rank % 2) + rank) % comms;
        result = begin(&lanes[which], rank, which, &requests[which]);
    }
    while (result == qcclSuccess) {
        result = qcclWaitAny(comms, requests, &which);
        if (result != qcclSuccess || which < 0) break;
        if (!is_right(&lanes[which], which)) result = qcclInternalError;
        noted->ranks[rank].calls++;
        if (++lanes[which].made < each && result == qcclSuccess)
            result = begin(&lanes[which], rank, which, &requests[which]);
    }
    if (result == qcclSuccess && noted->ranks[rank].calls != comms * each)
        result = qcclInternalError;
    /* The kit asks the first communicator, which has not made these calls. */
    if (result != qcclSuccess) strcpy(noted->gathered[rank], qcclGetLastError(NULL));
    for (i = 0; i < comms; i++) qcclRequestFree(requests[i]);
    ended = close_lanes(lanes);
    return result == qcclSuccess ? ended : result;
}

static void processes_cross_their_communicators(void **state)
{
    const scenario_t scenario = {cross, NULL, 0, -1, 0, 0, NULL, NULL};
    int statuses[size], rank;
    (void)state;
    play(&scenario, statuses);
    for (rank = 0; rank < size; rank++) {
        if (statuses[rank] != 0 || shared->ranks[rank].result != qcclSuccess)
            fail_msg("rank %d: status %d, %s", rank, statuses[rank], shared->ranks[rank].sentence);
        assert_int_equal(shared->ranks[rank].calls, comms * each);
        assert_int_equal(shared->ranks[rank].destroyed, qcclSuccess);
    }
}

/* The rule counts the calls of each communicator; each has a call in flight. */
static void a_death_ends_the_calls_of_all_communicators(void **state)
{
    const scenario_t scenario = {cross, "rank=1,call=40,kill", 0, -1, 0, 0, NULL, NULL};
    int statuses[size], rank;
    (void)state;
    play(&scenario, statuses);
    assert_true(WIFSIGNALED(statuses[1]));
    for (rank = 0; rank < size; rank++) {
        if (rank == 1) continue;
        assert_int_equal(statuses[rank], 0);
        assert_int_equal(shared->ranks[rank].result, qcclPeerLost);
        assert_says(shared->gathered[rank], "rank 1");
    }
}

/* All ranks of two communicators in one thread. Rank 0 begins with one and rank 1 with the other;
 * a communicator's call is done when both ranks have it. */
static void one_thread_drives_all_ranks_of_two_communicators(void **state)
{
    world_t worlds[2];
    qcclStream_t streams[2][pair];
    qcclRequest_t requests[2 * pair] = {NULL};
    float values[2][pair];
    int round, i, rank, index, done;
    (void)state;
    for (i = 0; i < 2; i++) {
        worlds[i] = make_world(pair);
        for (rank = 0; rank < pair; rank++)
            assert_int_equal(qcclStreamCreate(&streams[i][rank]), qcclSuccess);
    }
    for (round = 0; round < each; round++) {
        for (i = 0; i < 2 * pair; i++) {
            const int which = (i + i / 2 + round) % 2; /* 0 1 1 0, or 1 0 0 1 */
            rank = i / 2;
            values[which][rank] = (float)(round + which + rank);
            assert_int_equal(qcclAllReduce(&values[which][rank], &values[which][rank], 1,
                                           qcclFloat32, qcclSum, worlds[which].comms[rank],
                                           streams[which][rank]),
                             qcclSuccess);
            assert_int_equal(qcclRequestRecord(streams[which][rank], &requests[2 * which + rank]),
                             qcclSuccess);
        }
        for (done = 0; done < 2 * pair; done++) {
            assert_int_equal(qcclWaitAny(2 * pair, requests, &index), qcclSuccess);
            assert_in_range(index, 0, 2 * pair - 1);
            assert_true(values[index / 2][index % 2] == (float)(2 * (round + index / 2) + 1));
        }
    }
    for (i = 0; i < 2; i++) {
        for (rank = 0; rank < pair; rank++)
            assert_int_equal(qcclStreamDestroy(streams[i][rank]), qcclSuccess);
        end_world(&worlds[i]);
    }
}

/* In a group the communicators may come in any order, with streams and without. */
static qcclResult_t cross_in_groups(int rank, qcclComm_t comm, shared_t *noted)
{
    lane_t lanes[comms];
    qcclRequest_t requests[comms] = {NULL};
    qcclResult_t result = open_lanes(lanes, comm), ended;
    int round, i, which;
    for (round = 0; round < each && result == qcclSuccess; round++) {
        const int is_blocking = round % 2;
        result = qcclGroupStart();
        for (i = 0; i < comms && result == qcclSuccess; i++) {
            lane_t *lane = &lanes[(i * (1 + rank % 2) + rank + round) % comms];
            lane->values[0] = (float)(rank + round);
            result = qcclAllReduce(lane->values, lane->values, 1, qcclFloat32, qcclSum, lane->comm,
                                   is_blocking ? NULL : lane->stream);
        }
        ended = qcclGroupEnd();
        if (result == qcclSuccess) result = ended;
        for (i = 0; i < comms && !is_blocking && result == qcclSuccess; i++)
            result = qcclRequestRecord(lanes[i].stream, &requests[i]);
        for (i = 0; i < comms && !is_blocking && result == qcclSuccess; i++)
            result = qcclWaitAny(comms, requests, &which);
        for (i = 0; i < comms && result == qcclSuccess; i++)
            if (lanes[i].values[0] != (float)(size * round + size * (size - 1) / 2))
                result = qcclInternalError;
        noted->ranks[rank].calls++;
    }
    ended = close_lanes(lanes);
    return result == qcclSuccess ? ended : result;
}

static void groups_cross_their_communicators(void **state)
{
    const scenario_t scenario = {cross_in_groups, NULL, 0, -1, 0, 0, NULL, NULL};
    int statuses[size], rank;
    (void)state;
    play(&scenario, statuses);
    for (rank = 0; rank < size; rank++)
        if (statuses[rank] != 0 || shared->ranks[rank].result != qcclSuccess)
            fail_msg("rank %d: status %d, %s", rank, statuses[rank], shared->ranks[rank].sentence);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_cross_their_communicators),
        cmocka_unit_test(a_death_ends_the_calls_of_all_communicators),
        cmocka_unit_test(groups_cross_their_communicators),
        cmocka_unit_test(one_thread_drives_all_ranks_of_two_communicators),
        cmocka_unit_test(calls_happen_in_the_order_in_which_they_were_made),
        cmocka_unit_test(one_thread_can_drive_all_ranks),
        cmocka_unit_test(streams_and_communicators_may_cross),
        cmocka_unit_test(an_error_is_told_once),
        cmocka_unit_test(signals_are_the_program_s),
        cmocka_unit_test(streams_may_be_pinned),
    };
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
