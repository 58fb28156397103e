/* Tests groups over several communicators, whose calls go on in threads of their own: what their
 * idle functions may do, what happens if there is no thread, and what the caller has been told. */
#include "tests/api/api_kit.h"
#include "tests/kit/sanitizer.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { worlds = 2, pair = 2 };

/* Threads that may still be started; negative: any number. */
static atomic_int startable = -1;

/* Sanitizers interpose the same function. */
#define STARTS_AS_IT_IS (UNDER_ADDRESS_SANITIZER || UNDER_THREAD_SANITIZER)
#if !STARTS_AS_IT_IS
__attribute__((visibility("default"))) int pthread_create(pthread_t *thread,
                                                          const pthread_attr_t *attributes,
                                                          void *(*body)(void *), void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    if (startable == 0) return EAGAIN;
    if (startable > 0) startable--;
    return real(thread, attributes, body, argument);
}
#endif

/* What the idle function of a rank has tried. */
typedef struct {
    qcclComm_t comm;
    atomic_int calls;
    qcclResult_t collective, destroy, abort;
} idler_t;

static void misuse(void *context)
{
    idler_t *idler = context;
    if (!idler->comm || idler->calls++ > 0) return;
    idler->collective = qcclBarrier(idler->comm, NULL);
    idler->destroy = qcclCommDestroy(idler->comm);
    idler->abort = qcclCommAbort(idler->comm);
}

/* Rank 0 groups a call on each of two communicators. */
typedef struct {
    world_t made[worlds];
    idler_t idlers[worlds];       /* of rank 0 */
    int sends;                    /* rank 0 sends to rank 1; else both sum */
    qcclResult_t results[worlds]; /* of rank 1 */
    atomic_int has_started;       /* rank 1 */
} two_worlds_t;

static void make_worlds(two_worlds_t *both)
{
    int i;
    memset(both, 0, sizeof *both);
    for (i = 0; i < worlds; i++) {
        qcclConfig_t configs[pair] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
        configs[0].idle.function = misuse;
        configs[0].idle.context = &both->idlers[i];
        configs[1].timeout = 20;
        both->made[i] = join_world(pair, configs);
    }
}

static void end_worlds(two_worlds_t *both)
{
    int i;
    for (i = 0; i < worlds; i++) end_world(&both->made[i]);
}

static qcclResult_t call(const two_worlds_t *both, int world, int rank, float *value)
{
    const qcclComm_t comm = both->made[world].comms[rank];
    if (!both->sends) return qcclAllReduce(value, value, 1, qcclFloat32, qcclSum, comm, NULL);
    return rank == 0 ? qcclSend(value, 1, qcclFloat32, 1, comm, NULL)
                     : qcclRecv(value, 1, qcclFloat32, 0, comm, NULL);
}

static qcclResult_t call_in_both(const two_worlds_t *both, int rank)
{
    float values[worlds] = {1, 2};
    qcclResult_t result = qcclSuccess, ended;
    int i;
    qcclGroupStart();
    for (i = 0; i < worlds && result == qcclSuccess; i++) result = call(both, i, rank, &values[i]);
    ended = qcclGroupEnd();
    return result == qcclSuccess ? ended : result;
}

/* Rank 1 comes when the idle functions of rank 0 have been called. */
static qcclResult_t misuse_both(int rank, qcclComm_t comm, void *context)
{
    two_worlds_t *both = context;
    int i;
    (void)comm;
    if (rank == 0)
        for (i = 0; i < worlds; i++) both->idlers[i].comm = both->made[i].comms[0];
    else
        while (!both->idlers[0].calls || !both->idlers[1].calls) sleep_ms(1);
    return call_in_both(both, rank);
}

static void an_idle_function_is_inside_on_every_thread(void **state)
{
    two_worlds_t both;
    outcome_t outcome;
    int i;
    (void)state;
    make_worlds(&both);
    outcome = on_every_rank(&both.made[0], misuse_both, &both);
    assert_all_succeed(&outcome, pair);
    for (i = 0; i < worlds; i++) {
        assert_int_equal(both.idlers[i].collective, qcclInvalidUsage);
        assert_int_equal(both.idlers[i].destroy, qcclInvalidUsage);
        assert_int_equal(both.idlers[i].abort, qcclInvalidUsage);
        assert_works(&both.made[i]);
    }
    end_worlds(&both);
}

#if !STARTS_AS_IT_IS
static qcclResult_t lack_a_thread(int rank, qcclComm_t comm, void *context)
{
    two_worlds_t *both = context;
    float value = 1;
    qcclResult_t result;
    int i;
    (void)comm;
    if (rank == 0) {
        while (!both->has_started) sleep_ms(1);
        startable = 0;
        result = call_in_both(both, rank);
        startable = -1;
        return result;
    }
    both->has_started = 1;
    for (i = 0; i < worlds; i++) both->results[i] = call(both, i, rank, &value);
    return qcclSuccess;
}

/* The communicator that has no thread fails on all ranks, and the other one goes on. */
static void without_a_thread_a_communicator_fails(void **state)
{
    int sends;
    (void)state;
    for (sends = 0; sends < 2; sends++) {
        two_worlds_t both;
        outcome_t outcome;
        int failed;
        make_worlds(&both);
        both.sends = sends;
        outcome = on_every_rank(&both.made[0], lack_a_thread, &both);
        assert_int_equal(outcome.result[0], qcclSystemError);
        failed = both.results[0] == qcclSuccess;
        assert_int_equal(both.results[failed], qcclSystemError);
        assert_int_equal(both.results[!failed], qcclSuccess);
        assert_works(&both.made[!failed]);
        end_worlds(&both);
    }
}
#endif

/* ---- What the caller has been told */

/* Rank 2 hears of the mismatch from its group alone: nothing else asks for errors. */
static qcclResult_t hear_of_a_mismatch(int rank, qcclComm_t comm, void *context)
{
    atomic_int *have_failed = context;
    float value = 1;
    qcclResult_t told;
    if (rank < 2) {
        told = rank == 0 ? qcclBarrier(comm, NULL)
                         : qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comm, NULL);
        (*have_failed)++;
        return told;
    }
    while (*have_failed < 2) sleep_ms(1);
    qcclGroupStart();
    qcclSend(&value, 1, qcclFloat32, 0, comm, NULL);
    told = qcclGroupEnd();
    return qcclCommDestroy(comm) == qcclSuccess ? told : qcclInternalError;
}

/* A group that could not make its channels has told the caller why. */
static void a_mismatch_is_told_once(void **state)
{
    world_t world = join_world(3, NULL);
    atomic_int have_failed = 0;
    const outcome_t outcome = on_every_rank(&world, hear_of_a_mismatch, &have_failed);
    int rank;
    (void)state;
    for (rank = 0; rank < 3; rank++) assert_int_equal(outcome.result[rank], qcclMismatch);
    world.size = 2;
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_function_is_inside_on_every_thread),
#if !STARTS_AS_IT_IS
        cmocka_unit_test(without_a_thread_a_communicator_fails),
#endif
        cmocka_unit_test(a_mismatch_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
