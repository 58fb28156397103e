/* Implements what the tests of the C API share: communicators of several
 * threads, and checks of results and error sentences. */
#include "api_kit.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <sys/syscall.h>
#include <unistd.h>

typedef struct {
    int rank;
    qcclComm_t comm;
    body_t body;
    void *context;
    qcclResult_t result;
    char sentence[sentence_bytes];
} worker_t;

static void *work(void *argument)
{
    worker_t *worker = argument;
    worker->result = worker->body(worker->rank, worker->comm, worker->context);
    if (worker->result != qcclSuccess)
        snprintf(worker->sentence, sizeof worker->sentence, "%s", qcclGetLastError(NULL));
    return NULL;
}

outcome_t on_every_rank(const world_t *world, body_t body, void *context)
{
    worker_t workers[most_ranks];
    pthread_t threads[most_ranks];
    outcome_t outcome;
    int rank;
    memset(workers, 0, sizeof workers);
    memset(&outcome, 0, sizeof outcome);
    for (rank = 0; rank < world->size; rank++) {
        workers[rank].rank = rank;
        workers[rank].comm = world->comms[rank];
        workers[rank].body = body;
        workers[rank].context = context;
        assert_int_equal(pthread_create(&threads[rank], NULL, work, &workers[rank]), 0);
    }
    for (rank = 0; rank < world->size; rank++) {
        pthread_join(threads[rank], NULL);
        outcome.result[rank] = workers[rank].result;
        memcpy(outcome.sentence[rank], workers[rank].sentence, sentence_bytes);
    }
    return outcome;
}

void assert_all_succeed(const outcome_t *outcome, int size)
{
    int rank;
    for (rank = 0; rank < size; rank++)
        if (outcome->result[rank] != qcclSuccess)
            fail_msg("rank %d: %s", rank, outcome->sentence[rank]);
}

void assert_says(const char *sentence, const char *part)
{
    if (!strstr(sentence, part)) fail_msg("\"%s\" does not say \"%s\"", sentence, part);
}

void assert_all_say(const outcome_t *outcome, int size, qcclResult_t result, const char *part)
{
    int rank;
    for (rank = 0; rank < size; rank++) {
        if (outcome->result[rank] != result)
            fail_msg("rank %d: %d is not %d (%s)", rank, (int)outcome->result[rank], (int)result,
                     outcome->sentence[rank]);
        assert_says(outcome->sentence[rank], part);
        assert_string_equal(outcome->sentence[rank], outcome->sentence[0]);
    }
}

world_t make_world(int size)
{
    world_t world;
    memset(&world, 0, sizeof world);
    world.size = size;
    if (qcclCommInitAll(world.comms, size, NULL) != qcclSuccess)
        fail_msg("qcclCommInitAll: %s", qcclGetLastError(NULL));
    return world;
}

typedef struct {
    int size;
    qcclUniqueId id;
    const qcclConfig_t *configs;
    qcclComm_t comms[most_ranks];
} joining_t;

static qcclResult_t join(int rank, qcclComm_t comm, void *context)
{
    joining_t *joining = context;
    (void)comm;
    return qcclCommInitRankConfig(&joining->comms[rank], joining->size, &joining->id, rank,
                                  joining->configs ? &joining->configs[rank] : NULL);
}

world_t join_world(int size, const qcclConfig_t *configs)
{
    world_t world;
    joining_t joining;
    outcome_t outcome;
    memset(&world, 0, sizeof world);
    memset(&joining, 0, sizeof joining);
    world.size = joining.size = size;
    joining.configs = configs;
    if (qcclGetUniqueId(&joining.id) != qcclSuccess)
        fail_msg("qcclGetUniqueId: %s", qcclGetLastError(NULL));
    outcome = on_every_rank(&world, join, &joining);
    assert_all_succeed(&outcome, size);
    memcpy(world.comms, joining.comms, sizeof world.comms);
    return world;
}

void end_world(world_t *world)
{
    int rank;
    for (rank = 0; rank < world->size; rank++) {
        if (qcclCommDestroy(world->comms[rank]) != qcclSuccess)
            fail_msg("qcclCommDestroy: %s", qcclGetLastError(NULL));
        world->comms[rank] = NULL;
    }
}

static qcclResult_t add(int rank, qcclComm_t comm, void *context)
{
    double value = rank + 1.0;
    const qcclResult_t result = qcclAllReduce(&value, &value, 1, qcclFloat64, qcclSum, comm, NULL);
    ((double *)context)[rank] = value;
    return result;
}

void assert_works(const world_t *world)
{
    double sums[most_ranks];
    int rank;
    const outcome_t outcome = on_every_rank(world, add, sums);
    assert_all_succeed(&outcome, world->size);
    for (rank = 0; rank < world->size; rank++)
        assert_true(sums[rank] == world->size * (world->size + 1) / 2.0);
}

static void *wait_inside(void *argument)
{
    waiter_t *waiter = argument;
    atomic_store(&waiter->thread_id, (int)syscall(SYS_gettid));
    waiter->result = waiter->call(waiter->comm);
    strcpy(waiter->sentence, qcclGetLastError(NULL));
    return NULL;
}

/* Returns the kernel's state of the thread: 'S' asleep, 'R' running; 0: the
 * thread has ended. */
static char state_of(int thread_id)
{
    char path[64], text[128] = "";
    FILE *file;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread_id);
    file = fopen(path, "r");
    if (!file) return 0;
    if (!fgets(text, sizeof text, file)) text[0] = 0;
    fclose(file);
    return strstr(text, ") ") ? strstr(text, ") ")[2] : 0;
}

void start_waiter_in(waiter_t *waiter, qcclComm_t comm, qcclResult_t (*call)(qcclComm_t comm))
{
    const double began = now_s();
    char state = 'R';
    memset(waiter, 0, sizeof *waiter);
    waiter->comm = comm;
    waiter->call = call;
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_inside, waiter), 0);
    while (state != 'S' && state != 0) {
        const int thread_id = atomic_load(&waiter->thread_id);
        if (now_s() - began > 60) fail_msg("a thread does not come to sleep in its call");
        sleep_ms(1);
        if (thread_id != 0) state = state_of(thread_id);
    }
}

static qcclResult_t meet(qcclComm_t comm) { return qcclBarrier(comm, NULL); }

void start_waiter(waiter_t *waiter, qcclComm_t comm) { start_waiter_in(waiter, comm, meet); }

void check_waiter(waiter_t *waiter, qcclResult_t result, const char *part)
{
    pthread_join(waiter->thread, NULL);
    if (waiter->result != result)
        fail_msg("%d is not %d: %s", (int)waiter->result, (int)result, waiter->sentence);
    assert_says(waiter->sentence, part);
}

void hold_at_line(int32_t level, const char *line, void *context)
{
    hold_t *hold = context;
    const double began = now_s();
    (void)level;
    if (!strstr(line, hold->part)) return;
    atomic_store(&hold->is_held, 1);
    while (!atomic_load(&hold->may_go_on) && now_s() - began < 60) sleep_ms(1);
}

void await_hold(hold_t *hold)
{
    const double began = now_s();
    while (!atomic_load(&hold->is_held)) {
        if (now_s() - began > 60) fail_msg("no rank logs \"%s\"", hold->part);
        sleep_ms(1);
    }
}

void *allocate(size_t bytes)
{
    void *memory = NULL;
    if (qcclMemAlloc(&memory, bytes) != qcclSuccess)
        fail_msg("qcclMemAlloc: %s", qcclGetLastError(NULL));
    return memory;
}

void check_in_both_worlds(int size, body_t body)
{
    world_t worlds[2];
    int i, rank;
    worlds[0] = make_world(size);
    worlds[1] = join_world(size, NULL);
    for (i = 0; i < 2; i++) {
        int wrong[most_ranks] = {0};
        const outcome_t outcome = on_every_rank(&worlds[i], body, wrong);
        assert_all_succeed(&outcome, size);
        for (rank = 0; rank < size; rank++) assert_int_equal(wrong[rank], 0);
        end_world(&worlds[i]);
    }
}

qcclResult_t settled(qcclComm_t comm)
{
    const double began = now_s();
    qcclResult_t state = qcclInProgress;
    while (state == qcclInProgress && now_s() - began < patience_s) {
        const qcclResult_t asked = qcclCommGetAsyncError(comm, &state);
        if (asked != qcclSuccess) return asked;
        sleep_ms(1);
    }
    return state;
}

void sleep_ms(int ms)
{
    struct timespec time;
    time.tv_sec = ms / 1000;
    time.tv_nsec = ms % 1000 * 1000000L;
    nanosleep(&time, NULL);
}

double now_s(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
