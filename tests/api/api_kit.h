/* What the tests of the C API share: communicators whose ranks are threads, a thread for each rank,
 * and checks of results and error sentences. Only the main thread may run checks, because a CMocka
 * assert leaves by longjmp. */
#ifndef QCCL_TESTS_API_KIT_H
#define QCCL_TESTS_API_KIT_H

#include <qccl/qccl.h>

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { most_ranks = 8, sentence_bytes = 512, patience_s = 60 };

typedef struct {
    int size;
    qcclComm_t comms[most_ranks];
} world_t;

/* What one rank's thread does. on_every_rank keeps the result and the sentence of an error. */
typedef qcclResult_t (*body_t)(int rank, qcclComm_t comm, void *context);

typedef struct {
    qcclResult_t result[most_ranks];
    char sentence[most_ranks][sentence_bytes];
} outcome_t;

/* Makes a communicator with qcclCommInitAll. */
world_t make_world(int size);
/* Makes a communicator with qcclGetUniqueId and qcclCommInitRankConfig, on a thread for each rank.
 * Unlike those of qcclCommInitAll, these communicators do not know that they share a process.
 * configs: one for each rank, or NULL. */
world_t join_world(int size, const qcclConfig_t *configs);
void end_world(world_t *world);

/* Defines `world`, which all tests of a program share, and the functions `make` and `end` that
 * CMocka calls before the first of them and after the last. */
#define SHARED_WORLD(SIZE)                                                                         \
    static world_t world;                                                                          \
    static int make(void **state)                                                                  \
    {                                                                                              \
        (void)state;                                                                               \
        world = make_world(SIZE);                                                                  \
        return 0;                                                                                  \
    }                                                                                              \
    static int end(void **state)                                                                   \
    {                                                                                              \
        (void)state;                                                                               \
        end_world(&world);                                                                         \
        return 0;                                                                                  \
    }

/* Runs the body for all ranks, each on a thread of its own, and waits for all of them. */
outcome_t on_every_rank(const world_t *world, body_t body, void *context);
/* Runs the body on a communicator of make_world and on one of join_world, and checks that all ranks
 * succeed. Its context is an array of `int` by rank, in which it counts what is wrong: nothing. */
void check_in_both_worlds(int size, body_t body);
/* Fails with the sentence of the first rank that has an error. */
void assert_all_succeed(const outcome_t *outcome, int size);
/* Checks that every rank has this result and the same sentence, and that it contains `part`. */
void assert_all_say(const outcome_t *outcome, int size, qcclResult_t result, const char *part);
void assert_says(const char *sentence, const char *part);

/* Makes an all-reduce, which shows that the communicators still work. */
void assert_works(const world_t *world);

/* A thread that waits inside a barrier to which the other ranks do not come. */
typedef struct waiter {
    qcclComm_t comm;
    qcclResult_t (*call)(qcclComm_t comm);
    pthread_t thread;
    atomic_int thread_id; /* the system's number; 0: the thread has not begun */
    qcclResult_t result;
    char sentence[sentence_bytes];
} waiter_t;

/* Start the thread, and return when it sleeps in its call: a barrier, or `call`. */
void start_waiter(waiter_t *waiter, qcclComm_t comm);
void start_waiter_in(waiter_t *waiter, qcclComm_t comm, qcclResult_t (*call)(qcclComm_t comm));
/* Waits until the thread has returned, and checks its result and its sentence. */
void check_waiter(waiter_t *waiter, qcclResult_t result, const char *part);

/* Holds the rank that logs a line with `part`, until `may_go_on` is set. The function is a log
 * function; its context is a hold_t. */
typedef struct {
    const char *part;
    atomic_int is_held, may_go_on;
} hold_t;
void hold_at_line(int32_t level, const char *line, void *hold);
/* Waits until a rank is held. */
void await_hold(hold_t *hold);

/* Allocates with qcclMemAlloc. */
void *allocate(size_t bytes);

/* Polls until the communicator is not in progress any more, and returns what it is then. */
qcclResult_t settled(qcclComm_t comm);

void sleep_ms(int ms);
double now_s(void);

#endif
