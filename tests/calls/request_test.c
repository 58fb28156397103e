/* Tests requests on host streams: each is done when the work before it is, gives an error once, and
 * ends when it has been found done. Misuse is refused, and no wait outlasts the death of a rank. */
#include "tests/api/process_kit.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { pair = 2, rounds = 30 };

static qcclStream_t new_stream(void)
{
    qcclStream_t stream = NULL;
    if (qcclStreamCreate(&stream) != qcclSuccess)
        fail_msg("qcclStreamCreate: %s", qcclGetLastError(NULL));
    return stream;
}

/* Puts an all-reduce of one value and a request into the stream. */
static qcclResult_t begin(float *value, qcclComm_t comm, qcclStream_t stream,
                          qcclRequest_t *request)
{
    const qcclResult_t result = qcclAllReduce(value, value, 1, qcclFloat32, qcclSum, comm, stream);
    return result == qcclSuccess ? qcclRequestRecord(stream, request) : result;
}

static void assert_begins(float *value, qcclComm_t comm, qcclStream_t stream,
                          qcclRequest_t *request)
{
    if (begin(value, comm, stream, request) != qcclSuccess) fail_msg("%s", qcclGetLastError(NULL));
}

/* ---- Done or not */

static void a_request_is_done_when_the_work_before_it_is(void **state)
{
    world_t world = make_world(pair);
    qcclStream_t streams[pair] = {new_stream(), new_stream()};
    qcclRequest_t requests[pair] = {NULL, NULL}, same = NULL, later = NULL;
    float values[pair] = {1, 2};
    int is_done = 7;
    (void)state;
    assert_begins(&values[0], world.comms[0], streams[0], &requests[0]);
    same = requests[0];
    assert_int_equal(qcclTest(&requests[0], &is_done), qcclSuccess);
    assert_int_equal(is_done, 0); /* the other rank has not come */
    assert_ptr_equal(requests[0], same);
    assert_begins(&values[1], world.comms[1], streams[1], &requests[1]);
    assert_int_equal(qcclWait(&requests[0]), qcclSuccess);
    assert_null(requests[0]);
    assert_true(values[0] == 3);
    while (is_done == 0) assert_int_equal(qcclTest(&requests[1], &is_done), qcclSuccess);
    assert_null(requests[1]);
    assert_true(values[1] == 3);
    /* A request that is NULL is done. */
    is_done = 0;
    assert_int_equal(qcclTest(&requests[1], &is_done), qcclSuccess);
    assert_int_equal(is_done, 1);
    assert_int_equal(qcclWait(&requests[1]), qcclSuccess);
    /* So is one behind nothing, and one that outlives its stream. */
    assert_int_equal(qcclStreamSynchronize(streams[0]), qcclSuccess);
    assert_int_equal(qcclRequestRecord(streams[0], &later), qcclSuccess);
    assert_int_equal(qcclTest(&later, &is_done), qcclSuccess);
    assert_null(later);
    for (is_done = 0; is_done < pair; is_done++)
        assert_begins(&values[is_done], world.comms[is_done], streams[is_done], &requests[is_done]);
    for (is_done = 0; is_done < pair; is_done++)
        assert_int_equal(qcclStreamDestroy(streams[is_done]), qcclSuccess);
    assert_int_equal(qcclWaitAll(pair, requests), qcclSuccess);
    assert_true(values[0] == 6 && values[1] == 6);
    end_world(&world);
}

/* Every rank has many calls in flight, and waits for them in another order. */
static qcclResult_t in_any_order(int rank, qcclComm_t comm, void *context)
{
    qcclStream_t streams[2] = {NULL, NULL};
    qcclRequest_t requests[rounds] = {NULL};
    float values[rounds];
    qcclResult_t result = qcclSuccess;
    int i, left, index = -1;
    for (i = 0; i < 2; i++) qcclStreamCreate(&streams[i]);
    for (i = 0; i < rounds && result == qcclSuccess; i++) {
        values[i] = (float)i;
        result = begin(&values[i], comm, streams[(i + rank) % 2], &requests[i]);
    }
    if (rank == 0)
        for (left = rounds; left > 0 && result == qcclSuccess; left--) {
            result = qcclWaitAny(rounds, requests, &index);
            if (result == qcclSuccess && (requests[index] || values[index] != (float)(2 * index)))
                result = qcclInternalError;
        }
    else
        for (i = rounds - 1; i >= 0 && result == qcclSuccess; i--) result = qcclWait(&requests[i]);
    for (i = 0; i < rounds; i++)
        if (requests[i] || values[i] != (float)(2 * i)) ((int *)context)[rank]++;
    if (result == qcclSuccess) result = qcclWaitAny(rounds, requests, &index);
    if (index != -1) ((int *)context)[rank]++;
    for (i = 0; i < 2; i++) qcclStreamDestroy(streams[i]);
    return result;
}

static void requests_are_waited_for_in_any_order(void **state)
{
    (void)state;
    check_in_both_worlds(pair, in_any_order);
}

/* A thread that sleeps in qcclWaitAny. */
typedef struct {
    qcclRequest_t *requests;
    int count, index;
    qcclResult_t result;
    atomic_int has_returned;
} any_t;

static void *wait_for_any(void *argument)
{
    any_t *any = argument;
    any->result = qcclWaitAny(any->count, any->requests, &any->index);
    atomic_store(&any->has_returned, 1);
    return NULL;
}

static void a_wait_for_any_sleeps_until_one_is_done(void **state)
{
    world_t worlds[2];
    qcclStream_t streams[2][pair];
    qcclRequest_t requests[3] = {NULL, NULL, NULL}, other = NULL;
    float values[2][pair] = {{1, 1}, {1, 1}};
    any_t any;
    pthread_t thread;
    int i, rank;
    (void)state;
    memset(&any, 0, sizeof any);
    for (i = 0; i < 2; i++) {
        worlds[i] = make_world(pair);
        for (rank = 0; rank < pair; rank++) streams[i][rank] = new_stream();
    }
    assert_begins(&values[0][0], worlds[0].comms[0], streams[0][0], &requests[0]);
    assert_begins(&values[1][0], worlds[1].comms[0], streams[1][0], &requests[2]);
    any.requests = requests;
    any.count = 3;
    any.index = 7;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_any, &any), 0);
    sleep_ms(50);
    assert_int_equal(atomic_load(&any.has_returned), 0);
    assert_begins(&values[1][1], worlds[1].comms[1], streams[1][1], &other);
    pthread_join(thread, NULL);
    assert_int_equal(any.result, qcclSuccess);
    assert_int_equal(any.index, 2);
    assert_null(requests[2]);
    assert_non_null(requests[0]);
    assert_true(values[1][0] == 2);
    assert_int_equal(qcclWait(&other), qcclSuccess);
    assert_begins(&values[0][1], worlds[0].comms[1], streams[0][1], &other);
    assert_int_equal(qcclWaitAll(3, requests), qcclSuccess);
    assert_int_equal(qcclWait(&other), qcclSuccess);
    for (i = 0; i < 2; i++) {
        for (rank = 0; rank < pair; rank++)
            assert_int_equal(qcclStreamDestroy(streams[i][rank]), qcclSuccess);
        end_world(&worlds[i]);
    }
}

/* ---- Errors */

/* Decodes bytes that no encoder has written. */
static void put_error(qcclCodec_t codec, qcclStream_t stream)
{
    static const char bytes[256];
    static float values[4];
    assert_int_equal(qcclCodecDecode(codec, bytes, sizeof bytes, values, 4, qcclFloat32, stream),
                     qcclSuccess);
}

static void each_error_comes_once(void **state)
{
    qcclStream_t stream = new_stream();
    qcclCodec_t codec = NULL;
    qcclRequest_t requests[4] = {NULL};
    int is_done = 0, index = 7, i;
    (void)state;
    assert_int_equal(qcclCodecCreate(&codec, "int8"), qcclSuccess);
    /* The first request behind the call has the error, and no other function returns it. */
    put_error(codec, stream);
    for (i = 0; i < 2; i++) assert_int_equal(qcclRequestRecord(stream, &requests[i]), qcclSuccess);
    assert_int_equal(qcclWait(&requests[1]), qcclSuccess);
    assert_int_equal(qcclStreamSynchronize(stream), qcclSuccess);
    assert_int_equal(qcclTest(&requests[0], &is_done), qcclDamagedData);
    assert_int_equal(is_done, 1);
    assert_null(requests[0]);
    /* A function of the stream may have returned it before. */
    put_error(codec, stream);
    assert_int_equal(qcclStreamSynchronize(stream), qcclDamagedData);
    assert_int_equal(qcclRequestRecord(stream, &requests[0]), qcclSuccess);
    assert_int_equal(qcclWait(&requests[0]), qcclSuccess);
    /* Of several calls the request has the first error; each request has that of its own calls. */
    put_error(codec, stream);
    put_error(codec, stream);
    assert_int_equal(qcclRequestRecord(stream, &requests[0]), qcclSuccess);
    put_error(codec, stream);
    assert_int_equal(qcclRequestRecord(stream, &requests[1]), qcclSuccess);
    assert_int_equal(qcclWait(&requests[1]), qcclDamagedData);
    assert_int_equal(qcclWait(&requests[0]), qcclDamagedData);
    assert_int_equal(qcclStreamQuery(stream), qcclSuccess);
    /* A request that is given up drops it. */
    put_error(codec, stream);
    assert_int_equal(qcclRequestRecord(stream, &requests[0]), qcclSuccess);
    assert_int_equal(qcclRequestFree(requests[0]), qcclSuccess);
    assert_int_equal(qcclStreamSynchronize(stream), qcclSuccess);
    /* Arrays: the request with the error is named, and ends. */
    requests[0] = NULL;
    assert_int_equal(qcclRequestRecord(stream, &requests[1]), qcclSuccess);
    for (i = 2; i < 4; i++) {
        put_error(codec, stream);
        assert_int_equal(qcclRequestRecord(stream, &requests[i]), qcclSuccess);
    }
    assert_int_equal(qcclWaitAll(4, requests), qcclDamagedData);
    assert_says(qcclGetLastError(NULL), "requests[2]: ");
    for (i = 0; i < 4; i++) assert_null(requests[i]);
    put_error(codec, stream);
    assert_int_equal(qcclRequestRecord(stream, &requests[3]), qcclSuccess);
    assert_int_equal(qcclWaitAny(4, requests, &index), qcclDamagedData);
    assert_int_equal(index, 3);
    assert_null(requests[3]);
    assert_int_equal(qcclCodecDestroy(codec), qcclSuccess);
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
}

/* A mismatch that a request has told is not told by the end of the communicator again. */
static void a_failed_collective_is_told_by_its_request(void **state)
{
    world_t world = make_world(pair);
    qcclStream_t streams[pair] = {new_stream(), new_stream()};
    qcclRequest_t requests[pair] = {NULL, NULL};
    float values[pair][2] = {{0}};
    int rank;
    (void)state;
    for (rank = 0; rank < pair; rank++) {
        assert_int_equal(qcclAllReduce(values[rank], values[rank], 1 + (size_t)rank, qcclFloat32,
                                       qcclSum, world.comms[rank], streams[rank]),
                         qcclSuccess);
        assert_int_equal(qcclRequestRecord(streams[rank], &requests[rank]), qcclSuccess);
    }
    assert_int_equal(qcclWait(&requests[0]), qcclMismatch);
    assert_says(qcclGetLastError(NULL), "rank 1");
    assert_int_equal(qcclStreamSynchronize(streams[1]), qcclSuccess); /* the request has it */
    assert_int_equal(qcclRequestFree(requests[1]), qcclSuccess);
    assert_int_equal(qcclCommDestroy(world.comms[0]), qcclSuccess);
    assert_int_equal(qcclCommDestroy(world.comms[1]), qcclMismatch); /* nothing has told it */
    for (rank = 0; rank < pair; rank++)
        assert_int_equal(qcclStreamDestroy(streams[rank]), qcclSuccess);
}

/* ---- Misuse */

static void what_is_no_request_is_refused(void **state)
{
    qcclStream_t stream = new_stream();
    qcclRequest_t request = NULL, ended = NULL, array[3] = {NULL, NULL, NULL};
    int is_done = 7, index = 7;
    (void)state;
    assert_int_equal(qcclRequestRecord(NULL, &request), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "stream is NULL, not one from qcclStreamCreate");
    assert_int_equal(qcclRequestRecord(QCCL_STREAM_SYNC, &request), qcclInvalidArgument);
    assert_int_equal(qcclRequestRecord(stream, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "request_out is NULL");
    assert_null(request);
    assert_int_equal(qcclTest(NULL, &is_done), qcclInvalidArgument);
    assert_int_equal(qcclTest(&request, NULL), qcclInvalidArgument);
    assert_int_equal(qcclWait(NULL), qcclInvalidArgument);
    assert_int_equal(qcclWaitAny(0, NULL, NULL), qcclInvalidArgument);
    assert_int_equal(qcclWaitAny(-1, array, &index), qcclInvalidArgument);
    assert_int_equal(qcclWaitAny(1, NULL, &index), qcclInvalidArgument);
    assert_int_equal(qcclWaitAll(1, NULL), qcclInvalidArgument);
    assert_int_equal(qcclWaitAll(-1, array), qcclInvalidArgument);
    assert_int_equal(index, 7);
    assert_int_equal(qcclWaitAny(0, NULL, &index), qcclSuccess);
    assert_int_equal(index, -1);
    assert_int_equal(qcclWaitAll(0, NULL), qcclSuccess);
    assert_int_equal(qcclRequestFree(NULL), qcclSuccess);
    /* Handles of other kinds, and those that have ended. */
    request = stream;
    assert_int_equal(qcclTest(&request, &is_done), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "which no qcclRequestRecord made");
    assert_int_equal(qcclRequestRecord(stream, &request), qcclSuccess);
    array[1] = ended = request;
    assert_int_equal(qcclWait(&request), qcclSuccess);
    assert_int_equal(qcclWait(&ended), qcclInvalidUsage);
    assert_says(qcclGetLastError(NULL), "has been waited for or freed");
    assert_non_null(ended);
    assert_int_equal(qcclTest(&ended, &is_done), qcclInvalidUsage);
    assert_int_equal(qcclRequestFree(ended), qcclInvalidUsage);
    assert_int_equal(is_done, 7);
    assert_int_equal(qcclRequestRecord(stream, &array[2]), qcclSuccess);
    index = 7;
    assert_int_equal(qcclWaitAny(3, array, &index), qcclInvalidUsage);
    assert_says(qcclGetLastError(NULL), "requests[1]: ");
    assert_int_equal(index, 7);
    assert_int_equal(qcclWaitAll(3, array), qcclInvalidUsage);
    assert_non_null(array[2]);
    array[1] = array[2]; /* twice */
    assert_int_equal(qcclWaitAll(3, array), qcclInvalidUsage);
    assert_null(array[1]);
    assert_null(array[2]);
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
    assert_int_equal(qcclRequestRecord(stream, &request), qcclInvalidUsage);
}

/* A stream's own thread, in an idle function, cannot wait for the call that it is in. */
typedef struct {
    _Atomic(qcclRequest_t) request;
    qcclResult_t waited, waited_any;
    char sentence[sentence_bytes];
    atomic_int calls;
} idler_t;

static void wait_inside(void *context)
{
    idler_t *idler = context;
    qcclRequest_t request = atomic_load(&idler->request);
    int index = -1;
    if (!request || atomic_load(&idler->calls) > 0) return;
    idler->waited = qcclWait(&request);
    strcpy(idler->sentence, qcclGetLastError(NULL));
    idler->waited_any = qcclWaitAny(1, &request, &index);
    atomic_store(&idler->calls, 1);
}

static void a_stream_cannot_wait_for_itself(void **state)
{
    qcclConfig_t configs[pair] = {QCCL_CONFIG_INIT, QCCL_CONFIG_INIT};
    qcclStream_t stream = new_stream();
    qcclRequest_t request = NULL;
    float values[pair] = {1, 2};
    idler_t idler;
    world_t world;
    const double began = now_s();
    (void)state;
    memset(&idler, 0, sizeof idler);
    configs[0].idle.function = wait_inside;
    configs[0].idle.context = &idler;
    world = join_world(pair, configs);
    assert_begins(&values[0], world.comms[0], stream, &request);
    atomic_store(&idler.request, request);
    while (atomic_load(&idler.calls) == 0 && now_s() - began < 60) sleep_ms(1);
    assert_int_equal(idler.waited, qcclInvalidUsage);
    assert_says(idler.sentence, "a stream cannot wait for itself");
    assert_int_equal(idler.waited_any, qcclInvalidUsage);
    assert_int_equal(
        qcclAllReduce(&values[1], &values[1], 1, qcclFloat32, qcclSum, world.comms[1], NULL),
        qcclSuccess);
    assert_int_equal(qcclWait(&request), qcclSuccess);
    assert_true(values[0] == 3);
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
    end_world(&world);
}

/* Of threads that wait for one request, one gets its result. */
typedef struct {
    qcclRequest_t request;
    qcclResult_t result;
} waits_t;

static void *wait_for_it(void *argument)
{
    waits_t *waits = argument;
    waits->result = qcclWait(&waits->request);
    return NULL;
}

static void one_of_several_threads_gets_the_result(void **state)
{
    enum { threads = 6 };
    world_t world = make_world(pair);
    qcclStream_t streams[pair] = {new_stream(), new_stream()};
    pthread_t waiting[threads];
    waits_t waits[threads];
    float values[pair] = {1, 2};
    int round, i;
    (void)state;
    for (round = 0; round < 20; round++) {
        qcclRequest_t request = NULL, other = NULL;
        int successes = 0;
        assert_begins(&values[0], world.comms[0], streams[0], &request);
        for (i = 0; i < threads; i++) {
            waits[i].request = request;
            assert_int_equal(pthread_create(&waiting[i], NULL, wait_for_it, &waits[i]), 0);
        }
        assert_begins(&values[1], world.comms[1], streams[1], &other);
        for (i = 0; i < threads; i++) {
            pthread_join(waiting[i], NULL);
            successes += waits[i].result == qcclSuccess;
            assert_true(waits[i].result == qcclSuccess || waits[i].result == qcclInvalidUsage);
        }
        assert_int_equal(successes, 1);
        assert_int_equal(qcclWait(&other), qcclSuccess);
    }
    for (i = 0; i < pair; i++) assert_int_equal(qcclStreamDestroy(streams[i]), qcclSuccess);
    end_world(&world);
}

static void a_forked_child_is_refused(void **state)
{
    qcclStream_t stream = new_stream();
    qcclRequest_t request = NULL;
    int status = -1;
    pid_t child;
    (void)state;
    assert_int_equal(qcclRequestRecord(stream, &request), qcclSuccess);
    child = fork();
    if (child == 0) {
        int is_done = 0, wrong = 0;
        wrong += qcclTest(&request, &is_done) != qcclInvalidUsage;
        wrong += strstr(qcclGetLastError(NULL), "after fork") == NULL;
        wrong += qcclWait(&request) != qcclInvalidUsage;
        wrong += qcclRequestFree(request) != qcclInvalidUsage;
        _exit(wrong);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(qcclWait(&request), qcclSuccess);
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
}

/* ---- A rank that dies */

static qcclResult_t sum_with_requests(int rank, qcclComm_t comm, shared_t *noted)
{
    enum { in_flight = 8 };
    float *values = malloc(in_flight * count * sizeof *values);
    qcclRequest_t requests[in_flight] = {NULL};
    qcclStream_t stream = NULL;
    qcclResult_t result = qcclStreamCreate(&stream);
    int call, i, index;
    for (call = 0; call < calls_of_body && result == qcclSuccess; call++) {
        index = call;
        if (call >= in_flight) result = qcclWaitAny(in_flight, requests, &index);
        for (i = 0; i < count && call >= in_flight && result == qcclSuccess; i++)
            if (values[index * count + i] != size) result = qcclInternalError;
        if (result != qcclSuccess) break;
        for (i = 0; i < count; i++) values[index * count + i] = 1;
        result = qcclAllReduce(&values[index * count], &values[index * count], count, qcclFloat32,
                               qcclSum, comm, stream);
        if (result == qcclSuccess) result = qcclRequestRecord(stream, &requests[index]);
        if (result == qcclSuccess) noted->ranks[rank].calls++;
    }
    if (result == qcclSuccess) result = qcclWaitAll(in_flight, requests);
    for (i = 0; i < in_flight; i++) qcclRequestFree(requests[i]);
    qcclStreamDestroy(stream);
    free(values);
    return result;
}

static void ranks_as_processes(void **state)
{
    const scenario_t scenario = {sum_with_requests, NULL, 0, -1, 0, 0, NULL, NULL};
    int statuses[size];
    (void)state;
    play(&scenario, statuses);
    check_all_succeeded(statuses);
}

static void a_request_ends_when_a_rank_dies(void **state)
{
    const scenario_t scenario = {
        sum_with_requests, "rank=2,call=100,kill", 0, -1, 0, 0, NULL, NULL};
    int statuses[size], rank;
    (void)state;
    play(&scenario, statuses);
    assert_true(WIFSIGNALED(statuses[2]));
    for (rank = 0; rank < size; rank++) {
        if (rank == 2) continue;
        assert_int_equal(statuses[rank], 0);
        assert_int_equal(shared->ranks[rank].result, qcclPeerLost);
        assert_says(shared->ranks[rank].sentence, "rank 2");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_is_refused),
        cmocka_unit_test(ranks_as_processes),
        cmocka_unit_test(a_request_ends_when_a_rank_dies),
        cmocka_unit_test(a_request_is_done_when_the_work_before_it_is),
        cmocka_unit_test(requests_are_waited_for_in_any_order),
        cmocka_unit_test(a_wait_for_any_sleeps_until_one_is_done),
        cmocka_unit_test(each_error_comes_once),
        cmocka_unit_test(a_failed_collective_is_told_by_its_request),
        cmocka_unit_test(what_is_no_request_is_refused),
        cmocka_unit_test(a_stream_cannot_wait_for_itself),
        cmocka_unit_test(one_of_several_threads_gets_the_result),
    };
    return cmocka_run_group_tests(tests, share_memory, NULL);
}
