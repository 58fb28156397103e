/* Plays the scenarios of process_kit.h: forks the ranks, lets each note in
 * shared memory how it fared, and kills all ranks if one hangs. */
#include "process_kit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

shared_t *shared;

int share_memory(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

static int gather(const void *mine, void *all, size_t bytes, void *context)
{
    const int rank = *(int *)context;
    int from;
    if (bytes > sizeof shared->gathered[0]) return 1;
    memcpy(shared->gathered[rank], mine, bytes);
    pthread_barrier_wait(&shared->barrier);
    for (from = 0; from < size; from++)
        memcpy((char *)all + (size_t)from * bytes, shared->gathered[from], bytes);
    pthread_barrier_wait(&shared->barrier);
    return 0;
}

/* Threads of several communicators may warn at the same time. */
static void keep_warning(int32_t level, const char *line, void *context)
{
    const int rank = *(int *)context;
    const int i = level == 1 ? atomic_fetch_add(&shared->ranks[rank].warnings, 1) : most_warnings;
    if (i >= most_warnings) return;
    snprintf(shared->ranks[rank].warned[i], sizeof shared->ranks[rank].warned[i], "%s", line);
}

int warnings_with(const char *part)
{
    int rank, i, found = 0;
    for (rank = 0; rank < size; rank++)
        for (i = 0; i < most_warnings && i < shared->ranks[rank].warnings; i++)
            found += strstr(shared->ranks[rank].warned[i], part) != NULL;
    return found;
}

static void note(int rank, qcclComm_t comm, qcclResult_t result)
{
    qcclErrorInfo_t info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    shared->ranks[rank].result = result;
    shared->ranks[rank].peer = -1;
    if (result == qcclSuccess) return;
    strcpy(shared->ranks[rank].sentence, qcclGetLastError(comm));
    if (comm && qcclGetErrorInfo(comm, &info) == qcclSuccess) shared->ranks[rank].peer = info.peer;
}

static void be_rank(int rank, const scenario_t *scenario)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclOob_t oob = {gather, NULL};
    qcclComm_t comm = NULL;
    qcclResult_t created;
    while (!atomic_load(&shared->has_id)) sleep_ms(1);
    oob.context = &rank;
    config.timeout = scenario->timeout;
    config.log.function = keep_warning;
    config.log.context = &rank;
    if (scenario->inject) setenv("QCCL_INJECT", scenario->inject, 1);
    if (scenario->prepare) scenario->prepare(rank);
    if (rank == 1) sleep_ms(scenario->late_ms);
    created = scenario->is_oob ? qcclCommInitOob(&comm, size, rank, &oob, &config)
                               : qcclCommInitRankConfig(&comm, size, &shared->id, rank, &config);
    shared->ranks[rank].created = created;
    note(rank, comm, created == qcclSuccess ? scenario->body(rank, comm, shared) : created);
    shared->ranks[rank].destroyed = qcclCommDestroy(comm);
    _exit(0);
}

/* Those that have been waited for have the number 0. */
static void end_ranks(const pid_t pids[size])
{
    int rank;
    for (rank = 0; rank < size; rank++)
        if (pids[rank] != 0) kill(pids[rank], SIGKILL);
}

void play(const scenario_t *scenario, int statuses[size])
{
    pid_t pids[size] = {0}, pid;
    int rank;
    memset(shared, 0, sizeof *shared);
    {
        pthread_barrierattr_t attributes;
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared->barrier, &attributes, size);
    }
    for (rank = 0; rank < size; rank++) {
        if (rank == scenario->missing) continue;
        pid = fork();
        if (pid == 0) be_rank(rank, scenario);
        if (pid < 0) end_ranks(pids);
        assert_true(pid > 0);
        pids[rank] = pid;
    }
    /* What is forked while another thread allocates, as the rendezvous thread does, waits for ever
     * for the address sanitizer's allocator. That of an earlier scenario sleeps by now, unless its
     * ranks have just ended. */
    if (qcclGetUniqueId(&shared->id) != qcclSuccess) {
        end_ranks(pids);
        fail_msg("%s", qcclGetLastError(NULL));
    }
    atomic_store(&shared->has_id, 1);
    if (scenario->disturb) scenario->disturb(pids, shared);
    for (rank = 0; rank < size; rank++)
        if (rank != scenario->missing) {
            const double begin = now_s();
            pid_t ended = 0;
            while (ended == 0 && now_s() - begin < 60) {
                ended = waitpid(pids[rank], &statuses[rank], WNOHANG);
                if (ended == 0) sleep_ms(5);
            }
            if (ended == 0) {
                end_ranks(pids);
                fail_msg("rank %d hangs", rank);
            }
            pids[rank] = 0;
        }
}

void await_calls(const shared_t *noted, int rank, int calls)
{
    const double begin = now_s();
    while (noted->ranks[rank].calls < calls && now_s() - begin < 60) sleep_ms(1);
}

qcclResult_t sum_forever(int rank, qcclComm_t comm, shared_t *noted)
{
    float *values = malloc(count * sizeof *values);
    qcclResult_t result = qcclSuccess;
    int call, i;
    for (call = 1; call <= calls_of_body && result == qcclSuccess; call++) {
        const int n = call % 3 ? count : 3;
        for (i = 0; i < n; i++) values[i] = (float)(rank + call);
        result = qcclAllReduce(values, values, (size_t)n, qcclFloat32, qcclSum, comm, NULL);
        for (i = 0; i < n && result == qcclSuccess; i++)
            if (values[i] != (float)(size * call + 6)) result = qcclInternalError;
        if (result == qcclSuccess) noted->ranks[rank].calls++;
    }
    free(values);
    return result;
}

void check_all_succeeded(const int statuses[size])
{
    int rank;
    for (rank = 0; rank < size; rank++) {
        if (statuses[rank] != 0 || shared->ranks[rank].result != qcclSuccess)
            fail_msg("rank %d: status %d, result %d: %s", rank, statuses[rank],
                     (int)shared->ranks[rank].result, shared->ranks[rank].sentence);
        assert_int_equal(shared->ranks[rank].destroyed, qcclSuccess);
        assert_int_equal(shared->ranks[rank].calls, calls_of_body);
    }
}

void check_all_name(int rank, qcclResult_t result, const char *part)
{
    int other, first = rank == 0 ? 1 : 0;
    for (other = 0; other < size; other++) {
        if (other == rank) continue;
        if (shared->ranks[other].result != result)
            fail_msg("rank %d: %d: %s", other, (int)shared->ranks[other].result,
                     shared->ranks[other].sentence);
        assert_says(shared->ranks[other].sentence, part);
        assert_string_equal(shared->ranks[other].sentence, shared->ranks[first].sentence);
        assert_int_equal(shared->ranks[other].destroyed, qcclSuccess);
    }
}
