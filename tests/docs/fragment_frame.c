/* Runs a fragment of a document on two ranks, which are threads of this process. documents_test.py
 * compiles it for each fragment, whose file FRAGMENT names. The fragment has the variables below,
 * as the page's reader would have them, and must leave the communicator without a failure. */
#include <qccl/qccl.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, COUNT = 1000 };

typedef struct {
    qcclComm_t comm;
    int rank, ranks;
    size_t count;        /* of one block */
    float *send, *recv;  /* RANKS blocks each */
    float *gradient;     /* one block: rank + 1 everywhere */
    qcclStream_t stream; /* of the host */
    qcclConfig_t config; /* nonblocking */
    qcclUniqueId id;
    qcclComm_t grown, rest, row;
    qcclCodec_t codec;
} Variables;

static void compute_something_else(void) {}

/* Each variable by its name, as the fragment writes it. */
static int run_fragment(Variables *of_rank)
{
    qcclComm_t comm = of_rank->comm;
    const int rank = of_rank->rank, ranks = of_rank->ranks;
    const size_t count = of_rank->count;
    float *const send = of_rank->send, *const recv = of_rank->recv,
                 *const gradient = of_rank->gradient;
    const qcclStream_t stream = of_rank->stream;
    qcclConfig_t config = of_rank->config;
    qcclUniqueId id = of_rank->id;
    qcclComm_t grown = NULL, rest = NULL, row = NULL;
    qcclCodec_t codec = NULL;
    void (*const unused)(void) = compute_something_else;
    (void)comm, (void)rank, (void)ranks, (void)count, (void)send, (void)recv, (void)gradient,
        (void)stream;
    (void)config, (void)id, (void)grown, (void)rest, (void)row, (void)codec, (void)unused;
    {
#include FRAGMENT
    } of_rank->grown = grown,
      of_rank->rest = rest, of_rank->row = row, of_rank->codec = codec;
    return 0;
}

/* Whether a call has succeeded; says so if it has not. */
static int is_fine(const Variables *of_rank, const char *what, qcclResult_t result)
{
    if (result == qcclSuccess) return 1;
    fprintf(stderr, "rank %d, %s: %s\n", of_rank->rank, what, qcclGetErrorString(result));
    fprintf(stderr, "rank %d: %s\n", of_rank->rank, qcclGetLastError(NULL));
    return 0;
}

static void *run_rank(void *argument)
{
    Variables *const of_rank = argument;
    qcclComm_t *const made[] = {&of_rank->grown, &of_rank->rest, &of_rank->row};
    qcclResult_t failure = qcclSuccess;
    int fine = is_fine(of_rank, "qcclStreamCreate", qcclStreamCreate(&of_rank->stream));
    fine = run_fragment(of_rank) == 0 && fine;
    fine = is_fine(of_rank, "the stream", qcclStreamDestroy(of_rank->stream)) && fine;
    fine =
        is_fine(of_rank, "qcclCommGetAsyncError", qcclCommGetAsyncError(of_rank->comm, &failure)) &&
        fine;
    fine = is_fine(of_rank, "the communicator", failure) && fine;
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        fine =
            is_fine(of_rank, "a communicator of the fragment", qcclCommDestroy(*made[i])) && fine;
    fine = is_fine(of_rank, "qcclCodecDestroy", qcclCodecDestroy(of_rank->codec)) && fine;
    fine = is_fine(of_rank, "qcclCommDestroy", qcclCommDestroy(of_rank->comm)) && fine;
    return fine ? NULL : argument;
}

static float *new_values(size_t count, float value)
{
    float *const values = malloc(count * sizeof *values);
    for (size_t i = 0; values && i < count; i++) values[i] = value;
    return values;
}

int main(void)
{
    static Variables variables[RANKS];
    static const qcclConfig_t usual = QCCL_CONFIG_INIT;
    qcclComm_t comms[RANKS];
    pthread_t threads[RANKS];
    int failed = 0;
    if (qcclCommInitAll(comms, RANKS, NULL) != qcclSuccess)
        return fprintf(stderr, "%s\n", qcclGetLastError(NULL)), 1;
    for (int rank = 0; rank < RANKS; rank++) {
        Variables *const of_rank = &variables[rank];
        *of_rank = (Variables){
            .comm = comms[rank], .rank = rank, .ranks = RANKS, .count = COUNT, .config = usual};
        of_rank->config.nonblocking = 1;
        of_rank->send = new_values(RANKS * COUNT, (float)(rank + 1));
        of_rank->recv = new_values(RANKS * COUNT, 0);
        of_rank->gradient = new_values(COUNT, (float)(rank + 1));
        if (pthread_create(&threads[rank], NULL, run_rank, of_rank) != 0) return 1;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        void *result = NULL;
        pthread_join(threads[rank], &result);
        failed += result != NULL;
    }
    return failed;
}
