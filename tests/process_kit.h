/* What the tests of communicators of processes share: a scenario is played by forked ranks, which
 * note how they fared where the parent reads it. */
#ifndef QCCL_TESTS_PROCESS_KIT_H
#define QCCL_TESTS_PROCESS_KIT_H

#include "api_kit.h"

#include <pthread.h>
#include <sys/types.h>

enum { size = 4, count = 20000, most_warnings = 8 };

/* Shared between parent and ranks. */
typedef struct {
    qcclUniqueId id;
    pthread_barrier_t barrier; /* of ranks alone, for the all-gather of InitOob */
    char gathered[size][4096];
    struct {
        qcclResult_t created, result, destroyed;
        char sentence[sentence_bytes];
        int32_t peer;
        volatile int calls; /* that have succeeded */
        int warnings;
        char warned[most_warnings][256];
    } ranks[size];
} shared_t;

typedef struct scenario scenario_t;
struct scenario {
    /* Runs in each rank's process between creation and destruction. */
    qcclResult_t (*body)(int rank, qcclComm_t comm, shared_t *shared);
    const char *inject; /* QCCL_INJECT */
    double timeout;     /* of the config */
    int missing;        /* a rank that is not started; -1: none */
    int late_ms;        /* that rank 1 sleeps before it joins */
    int is_oob;
    void (*disturb)(const pid_t *ranks, shared_t *shared); /* the parent's part; may be NULL */
    void (*prepare)(int rank); /* in each rank's process before creation; may be NULL */
};

extern shared_t *shared;

/* A setup function of CMocka's. */
int share_memory(void **state);
/* Runs the scenario and gives the ranks' exit statuses. */
void play(const scenario_t *scenario, int statuses[size]);

/* A body: 200 all-reduces of `count` values and of a few, whose sums are checked. */
qcclResult_t sum_forever(int rank, qcclComm_t comm, shared_t *noted);
void check_all_succeeded(const int statuses[size]);
/* How many warnings of all ranks say that. */
int warnings_with(const char *part);
/* All but `rank` have heard the same of it, and could end in good order. */
void check_all_name(int rank, qcclResult_t result, const char *part);

#endif
