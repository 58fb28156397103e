/* What the tests of communicators between processes share. Forked ranks play a scenario, and note
 * their results in memory that the parent reads. */
#ifndef QCCL_TESTS_PROCESS_KIT_H
#define QCCL_TESTS_PROCESS_KIT_H

#include "api_kit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { size = 4, count = 20000, calls_of_body = 200, most_warnings = 8 };

/* Shared between parent and ranks. */
typedef struct {
    qcclUniqueId id;
    atomic_int has_id;
    pthread_barrier_t barrier; /* of the ranks, for the all-gather of qcclCommInitOob */
    char gathered[size][4096];
    struct {
        qcclResult_t created, result, destroyed;
        char sentence[sentence_bytes];
        int32_t peer;
        volatile int calls;  /* number that have succeeded */
        atomic_int warnings; /* those beyond most_warnings are counted, but not kept */
        char warned[most_warnings][256];
    } ranks[size];
} shared_t;

typedef struct scenario scenario_t;
struct scenario {
    /* Runs in each rank's process between creation and destruction. */
    qcclResult_t (*body)(int rank, qcclComm_t comm, shared_t *shared);
    const char *inject; /* QCCL_INJECT */
    double timeout;     /* of the config */
    int missing;        /* the rank that is not started; -1: none */
    int late_ms;        /* time that rank 1 sleeps before it joins */
    int is_oob;
    void (*disturb)(const pid_t *ranks, shared_t *shared); /* runs in the parent; may be NULL */
    void (*prepare)(int rank); /* runs in each rank's process before creation; may be NULL */
};

extern shared_t *shared;

/* Maps `shared`. A setup function for CMocka. */
int share_memory(void **state);
/* Plays the scenario, and gives the exit statuses of the ranks. */
void play(const scenario_t *scenario, int statuses[size]);

/* Waits until the rank has made so many calls; not for ever, since it may have died. */
void await_calls(const shared_t *noted, int rank, int calls);
/* A body: makes calls_of_body all-reduces, of `count` values or of three, and checks the sums. */
qcclResult_t sum_forever(int rank, qcclComm_t comm, shared_t *noted);
/* Checks that every rank has ended without an error, after all of its calls. */
void check_all_succeeded(const int statuses[size]);
/* Returns how many warnings of all ranks contain `part`. */
int warnings_with(const char *part);
/* Checks that all ranks but `rank` got this result and the same sentence, which contains `part`,
 * and that qcclCommDestroy then succeeded. */
void check_all_name(int rank, qcclResult_t result, const char *part);

#endif
