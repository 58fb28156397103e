/* Tests the communication cost of creation: the number of all-gathers does not depend on the number
 * of ranks. At a rendezvous each all-gather takes two messages for every rank (relay_test), so the
 * total is linear. */
#include <qccl/qccl.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { most_ranks = 16, most_bytes = 1 << 16, most_gathers = 6 };

typedef struct {
    pthread_barrier_t barrier;
    unsigned char *board;
} meeting_t;

typedef struct {
    meeting_t *meeting;
    pthread_t thread;
    int rank, size, gathers;
    qcclResult_t result;
} member_t;

static int gather(const void *mine, void *all, size_t bytes, void *context)
{
    member_t *member = context;
    unsigned char *board = member->meeting->board;
    if (bytes > most_bytes) return 1;
    member->gathers++;
    memcpy(board + (size_t)member->rank * bytes, mine, bytes);
    pthread_barrier_wait(&member->meeting->barrier);
    memcpy(all, board, (size_t)member->size * bytes);
    pthread_barrier_wait(&member->meeting->barrier);
    return 0;
}

static void *join(void *context)
{
    member_t *member = context;
    qcclOob_t oob = {gather, context};
    qcclComm_t comm = NULL;
    member->result = qcclCommInitOob(&comm, member->size, member->rank, &oob, NULL);
    if (member->result == qcclSuccess) member->result = qcclCommDestroy(comm);
    return NULL;
}

static int gathers_of(int size)
{
    member_t members[most_ranks];
    meeting_t meeting;
    int rank;
    meeting.board = malloc((size_t)size * most_bytes);
    assert_non_null(meeting.board);
    assert_int_equal(pthread_barrier_init(&meeting.barrier, NULL, (unsigned)size), 0);
    for (rank = 0; rank < size; rank++) {
        member_t member = {&meeting, 0, rank, size, 0, qcclInternalError};
        members[rank] = member;
        assert_int_equal(pthread_create(&members[rank].thread, NULL, join, &members[rank]), 0);
    }
    for (rank = 0; rank < size; rank++) pthread_join(members[rank].thread, NULL);
    for (rank = 0; rank < size; rank++) {
        assert_int_equal(members[rank].result, qcclSuccess);
        assert_int_equal(members[rank].gathers, members[0].gathers);
    }
    pthread_barrier_destroy(&meeting.barrier);
    free(meeting.board);
    return members[0].gathers;
}

static void many_ranks_gather_as_often_as_few(void **state)
{
    const int first = gathers_of(2), gathers = gathers_of(2);
    (void)state;
    /* The first communicator of a process may need one more, because one rank gives the machine's
     * topology to the others. */
    assert_in_range(first, gathers, most_gathers + 1);
    assert_in_range(gathers, 1, most_gathers);
    assert_int_equal(gathers_of(5), gathers);
    assert_int_equal(gathers_of(most_ranks), gathers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_ranks_gather_as_often_as_few),
    };
    if (setenv("QCCL_ARENA", "1M", 1) != 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
