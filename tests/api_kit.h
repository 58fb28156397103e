/* What the tests of the C API share: communicators of threads, a thread for each rank, and
 * sentences. Checks run on the main thread only: a CMocka assert leaves by longjmp. */
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

enum { most_ranks = 8, sentence_bytes = 256 };

typedef struct {
    int size;
    qcclComm_t comms[most_ranks];
} world_t;

/* What one rank's thread does; its result and sentence are kept. */
typedef qcclResult_t (*body_t)(int rank, qcclComm_t comm, void *context);

typedef struct {
    qcclResult_t result[most_ranks];
    char sentence[most_ranks][sentence_bytes];
} outcome_t;

/* By qcclCommInitAll. */
world_t make_world(int size);
/* By qcclGetUniqueId and qcclCommInitRankConfig, a thread for each rank: communicators that know
 * nothing of sharing a process. configs may be NULL, or holds one for each rank. */
world_t join_world(int size, const qcclConfig_t *configs);
void end_world(world_t *world);

outcome_t on_every_rank(const world_t *world, body_t body, void *context);
/* Fails with the first rank's sentence. */
void assert_all_succeed(const outcome_t *outcome, int size);
/* Every rank has this result and the same sentence, which contains `part`. */
void assert_all_say(const outcome_t *outcome, int size, qcclResult_t result, const char *part);
void assert_says(const char *sentence, const char *part);

/* An all-reduce that shows that the communicators still work. */
void assert_works(const world_t *world);

/* A thread that is inside a barrier, which others do not come to. */
typedef struct waiter {
    qcclComm_t comm;
    qcclResult_t (*call)(qcclComm_t comm);
    pthread_t thread;
    atomic_int thread_id; /* the system's; 0: it has not begun */
    qcclResult_t result;
    char sentence[sentence_bytes];
} waiter_t;

/* Returns when the thread sleeps in its call, a barrier or `call`. */
void start_waiter(waiter_t *waiter, qcclComm_t comm);
void start_waiter_in(waiter_t *waiter, qcclComm_t comm, qcclResult_t (*call)(qcclComm_t comm));
/* Waits for it to come out, and looks at what it was told. */
void check_waiter(waiter_t *waiter, qcclResult_t result, const char *part);

/* From qcclMemAlloc. */
void *allocate(size_t bytes);

void sleep_ms(int ms);
double now_s(void);

#endif
