/* qcclCommRegister: what it takes and refuses, and that results show nobody who has registered. */
#include "api_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { block = 100001, bytes = most_ranks * block * 4 };

static void *allocate(size_t size)
{
    void *memory = NULL;
    if (qcclMemAlloc(&memory, size) != qcclSuccess)
        fail_msg("qcclMemAlloc: %s", qcclGetLastError(NULL));
    return memory;
}

static void refused(qcclResult_t result, qcclResult_t expected, const char *part)
{
    if (result != expected) fail_msg("%d: %s", (int)result, qcclGetLastError(NULL));
    assert_says(qcclGetLastError(NULL), part);
}

static void what_is_no_shared_memory_is_refused(void **state)
{
    world_t world = make_world(1);
    qcclComm_t comm = world.comms[0];
    char on_stack[64];
    void *const on_heap = malloc(64), *const memory = allocate(10000);
    void *const mapped = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *handle = on_stack;
    (void)state;
    refused(qcclCommRegister(comm, NULL, 64, &handle), qcclInvalidArgument, "buffer is NULL");
    refused(qcclCommRegister(comm, memory, 0, &handle), qcclInvalidArgument, "bytes is 0");
    refused(qcclCommRegister(comm, memory, 64, NULL), qcclInvalidArgument, "handle_out is NULL");
    refused(qcclCommRegister(NULL, memory, 64, &handle), qcclInvalidArgument, "comm is NULL");
    refused(qcclCommRegister(comm, on_stack, 64, &handle), qcclInvalidArgument,
            "not memory from qcclMemAlloc; allocate it there, or leave it unregistered");
    refused(qcclCommRegister(comm, on_heap, 64, &handle), qcclInvalidArgument, "qcclMemAlloc");
    refused(qcclCommRegister(comm, mapped, 64, &handle), qcclInvalidArgument, "qcclMemAlloc");
    refused(qcclCommRegister(comm, (void *)4096, 64, &handle), qcclInvalidArgument, "qcclMemAlloc");
    refused(qcclCommRegister(comm, (char *)memory - 8, 64, &handle), qcclInvalidArgument,
            "qcclMemAlloc");
    /* 10000 bytes are three pages. */
    refused(qcclCommRegister(comm, (char *)memory + 12280, 9, &handle), qcclInvalidArgument,
            "bytes is 9, but from buffer on qcclMemAlloc gave only 8");
    refused(qcclCommDeregister(comm, on_stack), qcclInvalidArgument, "handle is 0x");
    assert_ptr_equal(handle, on_stack);
    assert_works(&world);
    assert_int_equal(qcclMemFree(memory), qcclSuccess);
    refused(qcclCommRegister(comm, memory, 64, &handle), qcclInvalidArgument, "qcclMemAlloc");
    munmap(mapped, 8192);
    free(on_heap);
    end_world(&world);
}

static void registered_memory_is_not_freed(void **state)
{
    world_t world = make_world(1), other = make_world(1);
    void *const memory = allocate(100000);
    void *whole, *part, *again, *elsewhere;
    (void)state;
    assert_int_equal(qcclCommRegister(world.comms[0], memory, 100000, &whole), qcclSuccess);
    assert_int_equal(qcclCommRegister(world.comms[0], (char *)memory + 70001, 5, &part),
                     qcclSuccess);
    assert_int_equal(qcclCommRegister(world.comms[0], memory, 100000, &again), qcclSuccess);
    assert_int_equal(qcclCommRegister(other.comms[0], memory, 1, &elsewhere), qcclSuccess);
    refused(qcclMemFree(memory), qcclInvalidUsage, "which is registered with a communicator");
    refused(qcclCommDeregister(other.comms[0], whole), qcclInvalidArgument,
            "did not give for this communicator");
    assert_int_equal(qcclCommDeregister(world.comms[0], part), qcclSuccess);
    assert_int_equal(qcclCommDeregister(world.comms[0], whole), qcclSuccess);
    assert_int_equal(qcclCommDeregister(world.comms[0], NULL), qcclSuccess);
    refused(qcclMemFree(memory), qcclInvalidUsage, "is registered");
    assert_int_equal(qcclCommDeregister(world.comms[0], again), qcclSuccess);
    refused(qcclMemFree(memory), qcclInvalidUsage, "is registered");
    refused(qcclCommDeregister(world.comms[0], again), qcclInvalidArgument, "handle is 0x");
    end_world(&other); /* deregisters what is left */
    assert_int_equal(qcclMemFree(memory), qcclSuccess);
    end_world(&world);
}

/* A mapping in several pieces is one memory all the same. */
static void memory_is_found_in_pieces(void **state)
{
    world_t world = make_world(1);
    char *const memory = allocate(16 * 4096);
    void *handle;
    (void)state;
    assert_int_equal(mprotect(memory + 4 * 4096, 4096, PROT_READ), 0);
    assert_int_equal(qcclCommRegister(world.comms[0], memory + 9 * 4096, 4096, &handle),
                     qcclSuccess);
    assert_int_equal(qcclCommDeregister(world.comms[0], handle), qcclSuccess);
    assert_int_equal(qcclMemFree(memory), qcclSuccess);
    end_world(&world);
}

static qcclResult_t run_late(int rank, qcclComm_t comm, void *context)
{
    float value = 1;
    qcclResult_t result;
    void *handle = NULL;
    qcclStream_t stream;
    if (rank == 1) sleep_ms(100);
    if (rank == 1) return qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comm, NULL);
    if (qcclStreamCreate(&stream) != qcclSuccess) return qcclInternalError;
    qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comm, stream);
    result = qcclCommRegister(comm, context, 64, &handle);
    if (result != qcclInvalidUsage || !strstr(qcclGetLastError(NULL), "under way"))
        return qcclInternalError;
    qcclStreamSynchronize(stream);
    result = qcclCommRegister(comm, context, 64, &handle);
    qcclStreamDestroy(stream);
    return result;
}

static void calls_under_way_come_first(void **state)
{
    world_t world = make_world(2);
    void *const memory = allocate(64);
    outcome_t outcome;
    (void)state;
    outcome = on_every_rank(&world, run_late, memory);
    assert_all_succeed(&outcome, 2);
    end_world(&world);
    assert_int_equal(qcclMemFree(memory), qcclSuccess);
}

/* A block whose descriptor a program has closed, like one that closes all it does not know, and
 * whose number it has given to another block of the size. */
typedef struct {
    char *memory, *other;
    int number; /* of the other's file */
} robbed_t;

enum { robbed_bytes = 1 << 20 };

static robbed_t rob(void)
{
    robbed_t robbed;
    char path[64], found[64] = "";
    robbed.number = dup(0);
    close(robbed.number);
    robbed.memory = allocate(robbed_bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", robbed.number);
    assert_true(readlink(path, found, sizeof found - 1) > 0);
    assert_says(found, "memfd:qccl");
    close(robbed.number);
    robbed.other = allocate(robbed_bytes);
    assert_true(readlink(path, found, sizeof found - 1) > 0);
    assert_says(found, "memfd:qccl");
    memset(robbed.memory, 1, robbed_bytes);
    memset(robbed.other, 2, robbed_bytes);
    return robbed;
}

/* Until everyone has mapped what there is. */
static qcclResult_t broadcast_often(int rank, qcclComm_t comm, void *context)
{
    char *const memory = context, *const own = malloc(robbed_bytes);
    qcclResult_t result = own ? qcclSuccess : qcclInternalError;
    size_t wrong = 0, i;
    int again;
    for (again = 0; again < 4 && result == qcclSuccess; again++) {
        memset(own, 1, robbed_bytes);
        own[robbed_bytes / 2] = 0;
        result =
            qcclBroadcast(memory, rank == 0 ? memory : own, robbed_bytes, qcclUint8, 0, comm, NULL);
        for (i = 0; rank != 0 && i < robbed_bytes; i++) wrong += own[i] != 1;
    }
    free(own);
    return wrong ? qcclDamagedData : result;
}

static void a_robbed_block_is_not_taken_for_another(void **state)
{
    world_t world = make_world(2);
    const robbed_t robbed = rob();
    struct stat before, after;
    outcome_t outcome;
    void *handle;
    (void)state;
    assert_int_equal(fstat(robbed.number, &before), 0);
    assert_int_equal(qcclCommRegister(world.comms[0], robbed.memory, robbed_bytes, &handle),
                     qcclSuccess);
    outcome = on_every_rank(&world, broadcast_often, robbed.memory);
    assert_all_succeed(&outcome, 2);
    end_world(&world);
    assert_int_equal(qcclMemFree(robbed.memory), qcclSuccess);
    assert_int_equal(fstat(robbed.number, &after), 0);
    assert_true(before.st_ino == after.st_ino);
    assert_int_equal(qcclMemFree(robbed.other), qcclSuccess);
    assert_int_equal(fstat(robbed.number, &after), -1);
}

static void count_lines(int32_t level, const char *line, void *context)
{
    if (level == 2 && strstr(line, "more blocks of memory are registered")) ++*(int *)context;
}

static void blocks_beyond_the_windows_are_told_once(void **state)
{
    enum { windows = 32, blocks = windows + 3 };
    qcclConfig_t config = QCCL_CONFIG_INIT;
    world_t world;
    void *memory[blocks], *handle;
    int lines = 0, i;
    (void)state;
    config.log.function = count_lines;
    config.log.context = &lines;
    setenv("QCCL_DEBUG", "info", 1);
    world = join_world(1, &config);
    unsetenv("QCCL_DEBUG");
    for (i = 0; i < blocks; i++) {
        memory[i] = allocate(1);
        assert_int_equal(qcclCommRegister(world.comms[0], memory[i], 1, &handle), qcclSuccess);
        assert_int_equal(qcclCommRegister(world.comms[0], memory[i], 1, &handle), qcclSuccess);
        assert_int_equal(lines, i >= windows);
    }
    end_world(&world);
    for (i = 0; i < blocks; i++) assert_int_equal(qcclMemFree(memory[i]), qcclSuccess);
}

/* One rank's memory, and what it received. */
typedef struct {
    float *send, *recv;
    void *handles[2];
    float *got;
    size_t got_count;
} holding_t;

typedef struct {
    int size;
    unsigned registers; /* a bit for each rank */
    int collective;     /* as in qcclErrorInfo_t */
    const char *algorithm;
    int in_place;
    size_t count;
    holding_t holdings[most_ranks];
} plan_t;

static float input(int rank, size_t i)
{
    return (float)((rank * 7919 + (int)(i % 9973)) % 127 - 60) / 8;
}

static qcclResult_t call(const plan_t *plan, int rank, qcclComm_t comm, holding_t *mine)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    const size_t n = plan->count, own = (size_t)rank * n;
    float *send = plan->in_place ? mine->recv : mine->send, *recv = mine->recv;
    config.algorithm = plan->algorithm;
    mine->got_count = plan->collective == 2 ? n * (size_t)plan->size : n;
    mine->got = recv;
    switch (plan->collective) {
    case 0: return qcclAllReduceConfig(send, recv, n, qcclFloat32, qcclAvg, comm, NULL, &config);
    case 1:
        if (plan->in_place) mine->got = recv = send + own;
        return qcclReduceScatterConfig(send, recv, n, qcclFloat32, qcclSum, comm, NULL, &config);
    case 2:
        if (plan->in_place) send = recv + own;
        return qcclAllGatherConfig(send, recv, n, qcclFloat32, comm, NULL, &config);
    default:
        return qcclBroadcastConfig(send, recv, n, qcclFloat32, plan->size - 1, comm, NULL, &config);
    }
}

/* Calls again and again. As soon as a call has returned, what it used is written over. */
static qcclResult_t call_often(int rank, qcclComm_t comm, void *context)
{
    plan_t *plan = context;
    holding_t *mine = &plan->holdings[rank];
    const size_t sent = plan->collective == 1 ? plan->count * (size_t)plan->size : plan->count;
    float *result = malloc(bytes);
    int again;
    for (again = 0; result && again < 4; again++) {
        float *send = plan->in_place ? mine->recv : mine->send;
        qcclResult_t done;
        size_t i;
        if (plan->in_place && plan->collective == 2) send += (size_t)rank * plan->count;
        for (i = 0; i < sent; i++) send[i] = input(rank + again, i);
        if ((rank + again) % 3 == 0) sleep_ms(1);
        done = call(plan, rank, comm, mine);
        if (done != qcclSuccess) {
            free(result);
            return done;
        }
        memcpy(result, mine->got, mine->got_count * sizeof(float));
        memset(mine->send, 0xDB, bytes);
        memset(mine->recv, 0xDB, bytes);
    }
    mine->got = result;
    return result ? qcclSuccess : qcclInternalError;
}

static void run_plan(const world_t *world, plan_t *plan)
{
    outcome_t outcome;
    int rank, i;
    for (rank = 0; rank < world->size; rank++)
        for (i = 0; i < 2; i++) {
            holding_t *holding = &plan->holdings[rank];
            holding->handles[i] = NULL;
            if ((plan->registers >> rank & 1) == 0) continue;
            assert_int_equal(qcclCommRegister(world->comms[rank], i ? holding->recv : holding->send,
                                              bytes, &holding->handles[i]),
                             qcclSuccess);
        }
    outcome = on_every_rank(world, call_often, plan);
    assert_all_succeed(&outcome, world->size);
    for (rank = 0; rank < world->size; rank++)
        for (i = 0; i < 2; i++)
            assert_int_equal(
                qcclCommDeregister(world->comms[rank], plan->holdings[rank].handles[i]),
                qcclSuccess);
}

static void compare_with_unregistered(const world_t *world, plan_t *plan)
{
    plan_t plain = *plan;
    int rank;
    plain.registers = 0;
    run_plan(world, &plain);
    run_plan(world, plan);
    for (rank = 0; rank < world->size; rank++) {
        float *const expected = plain.holdings[rank].got, *const got = plan->holdings[rank].got;
        if (memcmp(expected, got, plan->holdings[rank].got_count * sizeof(float)) != 0)
            fail_msg("collective %d, %s%s, %d ranks, registered 0x%x: rank %d has other bytes",
                     plan->collective, plan->algorithm, plan->in_place ? " in place" : "",
                     world->size, plan->registers, rank);
        free(expected);
        free(got);
    }
}

static void check_all(world_t world, unsigned registers)
{
    static const char *const algorithms[] = {"direct", "ring", "oneshot"};
    plan_t plan;
    int collective, rank;
    size_t algorithm;
    memset(&plan, 0, sizeof plan);
    plan.size = world.size;
    plan.registers = registers;
    for (rank = 0; rank < world.size; rank++) {
        plan.holdings[rank].send = allocate(bytes);
        plan.holdings[rank].recv = allocate(bytes);
    }
    for (collective = 0; collective < 4; collective++)
        for (algorithm = 0; algorithm < 3; algorithm++)
            for (plan.in_place = 0; plan.in_place < 2; plan.in_place++) {
                plan.collective = collective;
                plan.algorithm = algorithms[algorithm];
                plan.count = block;
                compare_with_unregistered(&world, &plan);
            }
    end_world(&world);
    for (rank = 0; rank < plan.size; rank++) {
        assert_int_equal(qcclMemFree(plan.holdings[rank].send), qcclSuccess);
        assert_int_equal(qcclMemFree(plan.holdings[rank].recv), qcclSuccess);
    }
}

static void whoever_registers_the_bytes_are_the_same(void **state)
{
    (void)state;
    check_all(make_world(3), 7);
    check_all(join_world(3, NULL), 7);
    check_all(join_world(2, NULL), 2);
    check_all(join_world(4, NULL), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_shared_memory_is_refused),
        cmocka_unit_test(registered_memory_is_not_freed),
        cmocka_unit_test(memory_is_found_in_pieces),
        cmocka_unit_test(calls_under_way_come_first),
        cmocka_unit_test(a_robbed_block_is_not_taken_for_another),
        cmocka_unit_test(blocks_beyond_the_windows_are_told_once),
        cmocka_unit_test(whoever_registers_the_bytes_are_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
