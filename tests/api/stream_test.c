/* Tests host streams: calls return at once, run in the order in which they were
 * made, and an error in them is reported once. */
#include "api_kit.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { size = 2, count = 50000, rounds = 20 };

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
    world_t worlds[2];
    int i;
    (void)state;
    worlds[0] = make_world(size);
    worlds[1] = join_world(size, NULL);
    for (i = 0; i < 2; i++) {
        int wrong[most_ranks] = {0};
        const outcome_t outcome = on_every_rank(&worlds[i], in_turn, wrong);
        assert_all_succeed(&outcome, size);
        assert_int_equal(wrong[0] + wrong[1], 0);
        end_world(&worlds[i]);
    }
}

/* One thread drives all ranks, which is impossible with blocking calls. */
static void one_thread_can_drive_all_ranks(void **state)
{
    world_t world = make_world(size);
    qcclStream_t streams[size];
    float values[size] = {1, 2};
    qcclResult_t async = qcclInternalError;
    int rank;
    (void)state;
    for (rank = 0; rank < size; rank++) {
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
    for (rank = 0; rank < size; rank++) {
        assert_int_equal(qcclStreamSynchronize(streams[rank]), qcclSuccess);
        assert_int_equal(qcclStreamQuery(streams[rank]), qcclSuccess);
        assert_true(values[rank] == 3);
    }
    /* Finalize waits for streams; destroying a stream waits for its work. */
    for (rank = 0; rank < size; rank++)
        assert_int_equal(qcclBarrier(world.comms[rank], streams[rank]), qcclSuccess);
    for (rank = 0; rank < size; rank++) {
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
    world_t first = make_world(size), second = make_world(size);
    qcclStream_t streams[2 * size];
    float values[2][size][rounds];
    int rank, round, i;
    (void)state;
    for (i = 0; i < 2 * size; i++) assert_int_equal(qcclStreamCreate(&streams[i]), qcclSuccess);
    for (round = 0; round < rounds; round++)
        for (rank = 0; rank < size; rank++) {
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
    for (i = 0; i < 2 * size; i++) {
        assert_int_equal(qcclStreamSynchronize(streams[i]), qcclSuccess);
        assert_int_equal(qcclStreamDestroy(streams[i]), qcclSuccess);
    }
    for (rank = 0; rank < size; rank++)
        for (round = 0; round < rounds; round++)
            assert_true(values[0][rank][round] == 2 && values[1][rank][round] == 2);
    end_world(&first);
    end_world(&second);
}

static void an_error_is_told_once(void **state)
{
    world_t world = make_world(size);
    qcclStream_t streams[size];
    float values[size][2] = {{0}};
    int rank;
    (void)state;
    for (rank = 0; rank < size; rank++) {
        assert_int_equal(qcclStreamCreate(&streams[rank]), qcclSuccess);
        assert_int_equal(qcclAllReduce(values[rank], values[rank], 1 + (size_t)rank, qcclFloat32,
                                       qcclSum, world.comms[rank], streams[rank]),
                         qcclSuccess);
    }
    for (rank = 0; rank < size; rank++) {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_happen_in_the_order_in_which_they_were_made),
        cmocka_unit_test(one_thread_can_drive_all_ranks),
        cmocka_unit_test(streams_and_communicators_may_cross),
        cmocka_unit_test(an_error_is_told_once),
        cmocka_unit_test(signals_are_the_program_s),
        cmocka_unit_test(streams_may_be_pinned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
