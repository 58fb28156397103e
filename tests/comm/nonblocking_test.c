/* Tests communicators whose config is nonblocking: creation and finalize return at once and go on,
 * the communicator refuses other calls meanwhile, and an abort ends a creation that hangs. */
#include "tests/api/process_kit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { pair = 2 };

static qcclConfig_t nonblocking(void)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.nonblocking = 1;
    return config;
}

static void assert_state(qcclComm_t comm, qcclResult_t state)
{
    qcclResult_t found = qcclInternalError;
    assert_int_equal(qcclCommGetAsyncError(comm, &found), qcclSuccess);
    assert_int_equal(found, state);
}

static void begin_rank(qcclComm_t *comm, int nranks, const qcclUniqueId *id, int rank)
{
    const qcclConfig_t config = nonblocking();
    const qcclResult_t result = qcclCommInitRankConfig(comm, nranks, id, rank, &config);
    if (result != qcclInProgress) fail_msg("rank %d: %s", rank, qcclGetLastError(NULL));
    assert_non_null(*comm);
}

/* One thread makes the calls of both ranks. */
static void assert_pair_works(const qcclComm_t comms[pair])
{
    qcclStream_t streams[pair] = {NULL, NULL};
    float values[pair] = {1, 2};
    int rank;
    for (rank = 0; rank < pair; rank++) {
        assert_int_equal(qcclStreamCreate(&streams[rank]), qcclSuccess);
        assert_int_equal(qcclAllReduce(&values[rank], &values[rank], 1, qcclFloat32, qcclSum,
                                       comms[rank], streams[rank]),
                         qcclSuccess);
    }
    for (rank = 0; rank < pair; rank++) {
        assert_int_equal(qcclStreamSynchronize(streams[rank]), qcclSuccess);
        assert_true(values[rank] == 3);
        assert_int_equal(qcclStreamDestroy(streams[rank]), qcclSuccess);
    }
}

/* ---- Creation */

static void one_thread_makes_all_ranks(void **state)
{
    qcclUniqueId id;
    qcclComm_t comms[pair] = {NULL, NULL};
    qcclErrorInfo_t info = {sizeof info, 0, 0, 0, 0, 0, 0, 0, 0, {0}};
    float value = 1;
    int rank = 7;
    (void)state;
    assert_int_equal(qcclGetUniqueId(&id), qcclSuccess);
    begin_rank(&comms[0], pair, &id, 0);
    sleep_ms(30);
    assert_state(comms[0], qcclInProgress);
    assert_int_equal(qcclCommGetAsyncError(comms[0], NULL), qcclInvalidArgument);
    assert_int_equal(qcclCommUserRank(comms[0], &rank), qcclInvalidUsage);
    assert_int_equal(rank, 7);
    assert_int_equal(qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comms[0], NULL),
                     qcclInvalidUsage);
    assert_says(qcclGetLastError(NULL), "comm is still being made");
    assert_says(qcclGetLastError(comms[0]), "comm is still being made");
    assert_int_equal(qcclGetErrorInfo(comms[0], &info), qcclSuccess);
    assert_int_equal(info.code, qcclInvalidUsage);
    assert_int_equal(qcclCommRevoke(comms[0]), qcclInvalidUsage);
    assert_int_equal(qcclCommFinalize(comms[0]), qcclInvalidUsage);
    assert_int_equal(qcclGroupStart(), qcclSuccess);
    assert_int_equal(qcclBarrier(comms[0], NULL), qcclInvalidUsage);
    assert_int_equal(qcclGroupEnd(), qcclInvalidUsage);
    begin_rank(&comms[1], pair, &id, 1);
    for (rank = 0; rank < pair; rank++) assert_int_equal(settled(comms[rank]), qcclSuccess);
    assert_string_equal(qcclGetLastError(comms[0]), "");
    assert_int_equal(qcclCommUserRank(comms[1], &rank), qcclSuccess);
    assert_int_equal(rank, 1);
    assert_pair_works(comms);
    for (rank = 0; rank < pair; rank++) {
        /* The root does not wait for the other rank, but finalize does. */
        assert_int_equal(qcclBroadcast(&value, &value, 1, qcclFloat32, 0, comms[rank], NULL),
                         qcclSuccess);
        assert_int_equal(qcclCommFinalize(comms[rank]), qcclInProgress);
        if (rank == 0) {
            sleep_ms(30);
            assert_state(comms[0], qcclInProgress);
            assert_int_equal(qcclBarrier(comms[0], NULL), qcclInvalidUsage);
            assert_says(qcclGetLastError(comms[0]), "returned qcclInProgress is not done");
        }
    }
    for (rank = 0; rank < pair; rank++) assert_int_equal(settled(comms[rank]), qcclSuccess);
    assert_pair_works(comms); /* finalize keeps the communicator */
    for (rank = 0; rank < pair; rank++)
        assert_int_equal(qcclCommFinalize(comms[rank]), qcclInProgress);
    for (rank = 0; rank < pair; rank++) { /* which waits for the end of finalize */
        assert_int_equal(qcclCommDestroy(comms[rank]), qcclSuccess);
        assert_int_equal(qcclCommGetAsyncError(comms[rank], &info.code), qcclInvalidUsage);
    }
}

/* Other ranks may wait as usual. */
static qcclResult_t make_either_way(int rank, qcclComm_t comm, void *context)
{
    const qcclConfig_t config = nonblocking();
    qcclResult_t result;
    (void)comm;
    comm = NULL;
    result = qcclCommInitRankConfig(&comm, pair, context, rank, rank == 0 ? &config : NULL);
    if (rank == 0 && result == qcclInProgress) result = settled(comm);
    if (result == qcclSuccess) result = qcclBarrier(comm, NULL);
    if (result == qcclSuccess) result = qcclCommDestroy(comm);
    return result;
}

static void ranks_may_differ(void **state)
{
    world_t nobody;
    qcclUniqueId id;
    outcome_t outcome;
    (void)state;
    memset(&nobody, 0, sizeof nobody);
    nobody.size = pair;
    assert_int_equal(qcclGetUniqueId(&id), qcclSuccess);
    outcome = on_every_rank(&nobody, make_either_way, &id);
    assert_all_succeed(&outcome, pair);
}

static void a_creation_error_stays_with_the_handle(void **state)
{
    qcclUniqueId id;
    qcclComm_t comms[pair] = {NULL, NULL};
    qcclErrorInfo_t info = {sizeof info, 0, 0, 0, 0, 0, 0, 0, 0, {0}};
    qcclResult_t state_found = qcclSuccess;
    int rank;
    (void)state;
    assert_int_equal(qcclGetUniqueId(&id), qcclSuccess);
    for (rank = 0; rank < pair; rank++) begin_rank(&comms[rank], pair + rank, &id, rank);
    for (rank = 0; rank < pair; rank++) {
        const qcclResult_t found = settled(comms[rank]);
        assert_true(found != qcclSuccess && found != qcclInProgress);
        assert_int_equal(qcclCommUserRank(comms[rank], &info.rank), found);
        assert_int_equal(qcclBarrier(comms[rank], NULL), found);
        assert_says(qcclGetLastError(comms[rank]), "2");
        assert_string_equal(qcclGetLastError(comms[rank]), qcclGetLastError(NULL));
        assert_int_equal(qcclGetErrorInfo(comms[rank], &info), qcclSuccess);
        assert_int_equal(info.code, found);
        assert_int_equal(rank == 0 ? qcclCommDestroy(comms[0]) : qcclCommAbort(comms[1]),
                         qcclSuccess);
        assert_int_equal(qcclCommGetAsyncError(comms[rank], &state_found), qcclInvalidUsage);
        assert_int_equal(qcclCommDestroy(comms[rank]), qcclInvalidUsage);
    }
}

static void what_cannot_go_on_is_refused(void **state)
{
    qcclConfig_t config = nonblocking();
    const qcclOob_t oob = {(int (*)(const void *, void *, size_t, void *))abort, NULL};
    qcclComm_t comm = NULL;
    qcclUniqueId id;
    (void)state;
    assert_int_equal(qcclCommInitOob(&comm, 1, 0, &oob, &config), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "config: nonblocking is 1");
    assert_int_equal(qcclGetUniqueId(&id), qcclSuccess);
    config.nonblocking = 2;
    assert_int_equal(qcclCommInitRankConfig(&comm, 1, &id, 0, &config), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "config: nonblocking is 2; possible are 0 and 1");
    config.nonblocking = 1;
    assert_int_equal(qcclCommInitRankConfig(&comm, 1, &id, -1, &config), qcclInvalidArgument);
    assert_null(comm);
}

/* ---- Abort and destroy */

static void an_abort_ends_a_creation_that_hangs(void **state)
{
    qcclUniqueId id;
    qcclComm_t comms[pair] = {NULL, NULL};
    double began;
    qcclResult_t found;
    (void)state;
    assert_int_equal(qcclGetUniqueId(&id), qcclSuccess);
    begin_rank(&comms[0], 3, &id, 0);
    begin_rank(&comms[1], 3, &id, 1);
    sleep_ms(500); /* both have met the rendezvous */
    began = now_s();
    assert_int_equal(qcclCommAbort(comms[0]), qcclSuccess);
    assert_true(now_s() - began < 20);
    assert_int_equal(qcclCommGetAsyncError(comms[0], &found), qcclInvalidUsage);
    /* The other rank learns that this one has left. */
    assert_int_equal(settled(comms[1]), qcclTimeout);
    assert_says(qcclGetLastError(comms[1]), "rank 0 gave up");
    assert_int_equal(qcclCommDestroy(comms[1]), qcclSuccess);
}

/* Rank 1 looks for rank 0, which does not listen; rank 0 waits for rank 1. */
static void an_abort_ends_the_wait_for_a_launched_rank(void **state)
{
    const qcclConfig_t config = nonblocking();
    char port[16];
    int rank;
    (void)state;
    snprintf(port, sizeof port, "%d", 20000 + getpid() % 10000);
    setenv("QCCL_PORT", port, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    for (rank = 1; rank >= 0; rank--) {
        qcclComm_t comm = NULL;
        double began;
        setenv("RANK", rank == 0 ? "0" : "1", 1);
        assert_int_equal(qcclCommInitEnv(&comm, &config), qcclInProgress);
        sleep_ms(200);
        assert_state(comm, qcclInProgress);
        began = now_s();
        assert_int_equal(qcclCommAbort(comm), qcclSuccess);
        assert_true(now_s() - began < 20);
    }
    setenv("WORLD_SIZE", "1", 1);
    {
        qcclComm_t comm = NULL;
        assert_int_equal(qcclCommInitEnv(&comm, &config), qcclInProgress);
        assert_int_equal(settled(comm), qcclSuccess);
        assert_int_equal(qcclCommDestroy(comm), qcclSuccess);
    }
    unsetenv("QCCL_PORT");
    unsetenv("WORLD_SIZE");
    unsetenv("MASTER_ADDR");
    unsetenv("RANK");
}

/* The abort comes at any moment of the creation: before the other rank can know that this one was
 * to come, so that it goes on waiting, or after the end. */
static void an_abort_may_come_at_any_moment(void **state)
{
    int round;
    (void)state;
    for (round = 0; round < 25; round++) {
        qcclUniqueId id;
        qcclComm_t comms[pair] = {NULL, NULL};
        qcclResult_t found;
        double began;
        assert_int_equal(qcclGetUniqueId(&id), qcclSuccess);
        begin_rank(&comms[0], pair, &id, 0);
        begin_rank(&comms[1], pair, &id, 1);
        usleep((useconds_t)(round * 1000));
        began = now_s();
        assert_int_equal(qcclCommAbort(comms[0]), qcclSuccess);
        sleep_ms(30);
        assert_int_equal(qcclCommGetAsyncError(comms[1], &found), qcclSuccess);
        if (found == qcclSuccess) { /* the failure is on its way */
            found = qcclBarrier(comms[1], NULL);
            assert_true(found == qcclRevoked || found == qcclPeerLost);
        }
        assert_int_equal(qcclCommAbort(comms[1]), qcclSuccess);
        assert_true(now_s() - began < 20);
    }
}

static void *come_late(void *argument)
{
    qcclComm_t comm = NULL;
    sleep_ms(100);
    if (qcclCommInitRank(&comm, pair, argument, 1) == qcclSuccess) (void)qcclCommDestroy(comm);
    return NULL;
}

static void destroy_waits_for_the_creation(void **state)
{
    qcclUniqueId id;
    qcclComm_t comm = NULL;
    pthread_t late;
    (void)state;
    assert_int_equal(qcclGetUniqueId(&id), qcclSuccess);
    begin_rank(&comm, pair, &id, 0);
    assert_int_equal(pthread_create(&late, NULL, come_late, &id), 0);
    assert_int_equal(qcclCommDestroy(comm), qcclSuccess);
    pthread_join(late, NULL);
}

/* A log function of the creation runs on the thread of the creation. */
typedef struct {
    _Atomic(qcclComm_t) comm;
    qcclResult_t aborted, destroyed;
    char sentence[sentence_bytes];
    atomic_int calls;
} logger_t;

static void end_inside(int32_t level, const char *line, void *context)
{
    logger_t *logger = context;
    qcclComm_t comm = NULL;
    const double began = now_s();
    (void)level;
    if (!strstr(line, "QCCL_NOSUCH") || atomic_fetch_add(&logger->calls, 1) > 0) return;
    while (!comm && now_s() - began < patience_s) comm = atomic_load(&logger->comm);
    logger->aborted = qcclCommAbort(comm);
    strcpy(logger->sentence, qcclGetLastError(NULL));
    logger->destroyed = qcclCommDestroy(comm);
}

static void a_creation_cannot_end_itself(void **state)
{
    qcclConfig_t config = nonblocking();
    qcclUniqueId id;
    qcclComm_t comm = NULL;
    logger_t logger;
    (void)state;
    memset(&logger, 0, sizeof logger);
    setenv("QCCL_NOSUCH", "1", 1); /* rank 0 warns */
    config.log.function = end_inside;
    config.log.context = &logger;
    assert_int_equal(qcclGetUniqueId(&id), qcclSuccess);
    assert_int_equal(qcclCommInitRankConfig(&comm, 1, &id, 0, &config), qcclInProgress);
    atomic_store(&logger.comm, comm);
    assert_int_equal(settled(comm), qcclSuccess);
    unsetenv("QCCL_NOSUCH");
    assert_int_equal(atomic_load(&logger.calls), 1);
    assert_int_equal(logger.aborted, qcclInvalidUsage);
    assert_says(logger.sentence, "its own creation");
    assert_int_equal(logger.destroyed, qcclInvalidUsage);
    assert_int_equal(qcclCommDestroy(comm), qcclSuccess);
}

/* ---- From a communicator */

static void duplicates_are_made_by_one_thread(void **state)
{
    const qcclConfig_t config = nonblocking();
    world_t world = make_world(pair);
    qcclComm_t children[pair] = {NULL, NULL}, grandchildren[pair] = {NULL, NULL};
    int rank;
    (void)state;
    assert_int_equal(qcclCommDup(world.comms[0], &children[0], &config), qcclInProgress);
    sleep_ms(30);
    assert_state(world.comms[0], qcclInProgress);
    assert_state(children[0], qcclInProgress);
    assert_int_equal(qcclBarrier(world.comms[0], NULL), qcclInvalidUsage);
    assert_says(qcclGetLastError(NULL), "returned qcclInProgress is not done");
    assert_int_equal(qcclBarrier(children[0], NULL), qcclInvalidUsage);
    assert_int_equal(qcclCommDup(world.comms[1], &children[1], &config), qcclInProgress);
    for (rank = 0; rank < pair; rank++) {
        assert_int_equal(settled(children[rank]), qcclSuccess);
        assert_int_equal(settled(world.comms[rank]), qcclSuccess);
    }
    assert_pair_works(children);
    assert_pair_works(world.comms);
    /* A child has its parent's config. */
    for (rank = 0; rank < pair; rank++)
        assert_int_equal(qcclCommDup(children[rank], &grandchildren[rank], NULL), qcclInProgress);
    for (rank = 0; rank < pair; rank++) /* which waits for what is inside */
        assert_int_equal(qcclCommDestroy(children[rank]), qcclSuccess);
    for (rank = 0; rank < pair; rank++) assert_int_equal(settled(grandchildren[rank]), qcclSuccess);
    assert_pair_works(grandchildren);
    for (rank = 0; rank < pair; rank++)
        assert_int_equal(qcclCommDestroy(grandchildren[rank]), qcclSuccess);
    end_world(&world);
}

static void a_rank_without_a_color_goes_on(void **state)
{
    const qcclConfig_t config = nonblocking();
    world_t world = make_world(pair);
    qcclComm_t children[pair] = {world.comms[0], NULL};
    int rank;
    (void)state;
    assert_int_equal(qcclCommSplit(world.comms[0], QCCL_SPLIT_NOCOLOR, 0, &children[0], &config),
                     qcclInProgress);
    assert_null(children[0]);
    assert_state(world.comms[0], qcclInProgress);
    assert_int_equal(qcclCommSplit(world.comms[1], 3, 0, &children[1], &config), qcclInProgress);
    assert_int_equal(settled(children[1]), qcclSuccess);
    for (rank = 0; rank < pair; rank++) assert_int_equal(settled(world.comms[rank]), qcclSuccess);
    assert_int_equal(qcclBarrier(children[1], NULL), qcclSuccess); /* of one rank */
    assert_int_equal(qcclCommDestroy(children[1]), qcclSuccess);
    end_world(&world);
}

static void a_split_is_aborted(void **state)
{
    const qcclConfig_t config = nonblocking();
    world_t world = make_world(pair);
    qcclComm_t children[pair] = {NULL, NULL};
    int rank;
    (void)state;
    assert_int_equal(qcclCommDup(world.comms[0], &children[0], &config), qcclInProgress);
    sleep_ms(30);
    assert_int_equal(qcclCommAbort(children[0]), qcclSuccess);
    assert_int_equal(settled(world.comms[0]), qcclRevoked);
    assert_says(qcclGetLastError(world.comms[0]), "rank 0 aborted a communicator before");
    assert_int_equal(qcclCommDup(world.comms[1], &children[1], &config), qcclInProgress);
    assert_int_equal(settled(children[1]), qcclRevoked);
    assert_int_equal(qcclCommDestroy(children[1]), qcclSuccess);
    end_world(&world);
    /* Aborting the old communicator ends the new one's creation, too. */
    world = make_world(pair);
    assert_int_equal(qcclCommDup(world.comms[0], &children[0], &config), qcclInProgress);
    assert_int_equal(qcclCommAbort(world.comms[0]), qcclSuccess);
    assert_int_equal(settled(children[0]), qcclRevoked);
    assert_int_equal(qcclCommAbort(children[0]), qcclSuccess);
    world.comms[0] = NULL;
    for (rank = 0; rank < pair; rank++)
        assert_int_equal(qcclCommDestroy(world.comms[rank]), qcclSuccess);
}

/* When the ranks have exchanged what they ask for, only the new communicator is given up. */
static void an_abort_in_the_creation_spares_the_old_communicator(void **state)
{
    hold_t hold = {"has met the others", 0, 0};
    qcclConfig_t configs[pair] = {nonblocking(), nonblocking()};
    world_t world = make_world(pair);
    qcclComm_t children[pair] = {NULL, NULL};
    int rank;
    (void)state;
    configs[1].log.function = hold_at_line;
    configs[1].log.context = &hold;
    setenv("QCCL_DEBUG", "info", 1);
    for (rank = 0; rank < pair; rank++)
        assert_int_equal(qcclCommDup(world.comms[rank], &children[rank], &configs[rank]),
                         qcclInProgress);
    await_hold(&hold);
    assert_int_equal(qcclCommAbort(children[0]), qcclSuccess);
    atomic_store(&hold.may_go_on, 1);
    assert_int_equal(settled(children[1]), qcclRevoked);
    unsetenv("QCCL_DEBUG");
    assert_says(qcclGetLastError(children[1]), "rank 0 aborted the communicator while it was made");
    assert_int_equal(qcclCommDestroy(children[1]), qcclSuccess);
    for (rank = 0; rank < pair; rank++) assert_int_equal(settled(world.comms[rank]), qcclSuccess);
    assert_pair_works(world.comms);
    end_world(&world);
}

static void survivors_shrink(void **state)
{
    const qcclConfig_t config = nonblocking();
    world_t world = make_world(3);
    qcclComm_t children[pair] = {NULL, NULL};
    int rank, count_found = 0;
    (void)state;
    assert_int_equal(qcclCommAbort(world.comms[2]), qcclSuccess);
    for (rank = 0; rank < pair; rank++)
        assert_int_equal(
            qcclCommShrink(world.comms[rank], NULL, 0, &children[rank], &config, QCCL_SHRINK_ABORT),
            qcclInProgress);
    for (rank = 0; rank < pair; rank++) {
        if (settled(children[rank]) != qcclSuccess)
            fail_msg("%s", qcclGetLastError(children[rank]));
        assert_int_equal(qcclCommCount(children[rank], &count_found), qcclSuccess);
        assert_int_equal(count_found, pair);
    }
    assert_pair_works(children);
    for (rank = 0; rank < pair; rank++) {
        assert_int_equal(qcclCommDestroy(world.comms[rank]), qcclSuccess);
        assert_int_equal(qcclCommDestroy(children[rank]), qcclSuccess);
    }
    /* An abort ends a shrink to which the other rank does not come. */
    world = make_world(pair);
    assert_int_equal(qcclCommShrink(world.comms[0], NULL, 0, &children[0], &config, 0),
                     qcclInProgress);
    sleep_ms(30);
    assert_int_equal(qcclCommAbort(children[0]), qcclSuccess);
    end_world(&world);
}

/* ---- Processes */

static qcclResult_t dup_and_finalize(int rank, qcclComm_t comm, shared_t *noted)
{
    const qcclConfig_t config = nonblocking();
    qcclComm_t child = NULL;
    qcclResult_t result = qcclSuccess;
    float value;
    int round;
    (void)noted;
    for (round = 0; round < 5 && result == qcclSuccess; round++) {
        result = qcclCommDup(comm, &child, &config);
        if (result == qcclInProgress) result = settled(child);
        if (result == qcclSuccess) result = settled(comm);
        value = (float)rank;
        if (result == qcclSuccess)
            result = qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, child, NULL);
        if (result == qcclSuccess && value != (float)(size * (size - 1) / 2))
            result = qcclInternalError;
        if (result == qcclSuccess) result = qcclCommFinalize(child);
        if (result == qcclInProgress) result = settled(child);
        if (result != qcclSuccess)
            snprintf(noted->gathered[rank], 500, "%s", qcclGetLastError(child));
        (void)qcclCommDestroy(child);
    }
    return result;
}

static void check_loss_of_2(const int statuses[size])
{
    int rank;
    assert_true(WIFSIGNALED(statuses[2]));
    for (rank = 0; rank < size; rank++) {
        if (rank == 2) continue;
        assert_int_equal(statuses[rank], 0);
        assert_int_equal(shared->ranks[rank].result, qcclPeerLost);
        assert_says(shared->gathered[rank], "rank 2");
    }
}

static void processes_make_duplicates(void **state)
{
    const scenario_t scenario = {dup_and_finalize, NULL, 0, -1, 0, 0, NULL, NULL};
    int statuses[size], rank;
    (void)state;
    play(&scenario, statuses);
    for (rank = 0; rank < size; rank++)
        if (statuses[rank] != 0 || shared->ranks[rank].result != qcclSuccess)
            fail_msg("rank %d: status %d, %s", rank, statuses[rank], shared->gathered[rank]);
}

/* Calls are counted in the parent, whose splits are calls. */
static void a_death_ends_a_creation(void **state)
{
    const scenario_t scenario = {dup_and_finalize, "rank=2,call=3,kill", 0, -1, 0, 0, NULL, NULL};
    int statuses[size];
    (void)state;
    play(&scenario, statuses);
    check_loss_of_2(statuses);
}

/* A rank that dies while the others finalize. */
static qcclResult_t finalize_alone(int rank, qcclComm_t comm, shared_t *noted)
{
    const qcclConfig_t config = nonblocking();
    qcclComm_t child = NULL;
    qcclResult_t result = qcclCommDup(comm, &child, &config);
    if (result == qcclInProgress) result = settled(child);
    if (result == qcclSuccess && rank == 2) {
        sleep_ms(100);
        raise(SIGKILL);
    }
    if (result == qcclSuccess) result = qcclBroadcast(NULL, NULL, 0, qcclInt8, 0, child, NULL);
    if (result == qcclSuccess) result = qcclCommFinalize(child);
    if (result == qcclInProgress) result = settled(child);
    snprintf(noted->gathered[rank], 500, "%s", qcclGetLastError(child));
    (void)qcclCommDestroy(child);
    return result;
}

static void a_death_ends_a_finalize(void **state)
{
    const scenario_t scenario = {finalize_alone, NULL, 0, -1, 0, 0, NULL, NULL};
    int statuses[size];
    (void)state;
    play(&scenario, statuses);
    check_loss_of_2(statuses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_make_duplicates),
        cmocka_unit_test(a_death_ends_a_creation),
        cmocka_unit_test(a_death_ends_a_finalize),
        cmocka_unit_test(one_thread_makes_all_ranks),
        cmocka_unit_test(ranks_may_differ),
        cmocka_unit_test(a_creation_error_stays_with_the_handle),
        cmocka_unit_test(what_cannot_go_on_is_refused),
        cmocka_unit_test(an_abort_ends_a_creation_that_hangs),
        cmocka_unit_test(an_abort_ends_the_wait_for_a_launched_rank),
        cmocka_unit_test(an_abort_may_come_at_any_moment),
        cmocka_unit_test(destroy_waits_for_the_creation),
        cmocka_unit_test(a_creation_cannot_end_itself),
        cmocka_unit_test(duplicates_are_made_by_one_thread),
        cmocka_unit_test(a_rank_without_a_color_goes_on),
        cmocka_unit_test(a_split_is_aborted),
        cmocka_unit_test(an_abort_in_the_creation_spares_the_old_communicator),
        cmocka_unit_test(survivors_shrink),
    };
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
