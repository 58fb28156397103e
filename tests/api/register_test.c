/* Tests qcclCommRegister and qcclCommDeregister: memory that is accepted or refused, and when a
 * registration ends. */
#include "api_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
    /* 10000 bytes take three pages. */
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
    refused(qcclCommDeregister(other.comms[0], whole), qcclInvalidUsage,
            "gave it for another communicator");
    assert_int_equal(qcclCommDeregister(world.comms[0], part), qcclSuccess);
    assert_int_equal(qcclCommDeregister(world.comms[0], whole), qcclSuccess);
    assert_int_equal(qcclCommDeregister(world.comms[0], NULL), qcclSuccess);
    refused(qcclMemFree(memory), qcclInvalidUsage, "is registered");
    assert_int_equal(qcclCommDeregister(world.comms[0], again), qcclSuccess);
    refused(qcclMemFree(memory), qcclInvalidUsage, "is registered");
    refused(qcclCommDeregister(world.comms[0], again), qcclInvalidUsage, "has been deregistered");
    assert_int_equal(qcclCommRegister(world.comms[0], memory, 100000, &part), qcclSuccess);
    assert_true(part != whole && part != again);
    refused(qcclCommDeregister(world.comms[0], again), qcclInvalidUsage, "has been deregistered");
    refused(qcclCommDeregister(world.comms[0], (char *)again + 1000), qcclInvalidArgument,
            "did not give");
    assert_int_equal(qcclCommDeregister(world.comms[0], part), qcclSuccess);
    end_world(&other); /* deregisters the rest */
    assert_int_equal(qcclMemFree(memory), qcclSuccess);
    end_world(&world);
}

/* A mapping that consists of several pieces is still one block. */
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

/* A block whose descriptor the program has closed, as a program does that closes all unknown
 * descriptors. The descriptor number now belongs to another block of the same size. */
typedef struct {
    char *memory, *other;
    int number; /* of the other block's file */
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

/* Repeats the broadcast until all ranks have mapped the windows. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_shared_memory_is_refused),
        cmocka_unit_test(registered_memory_is_not_freed),
        cmocka_unit_test(memory_is_found_in_pieces),
        cmocka_unit_test(calls_under_way_come_first),
        cmocka_unit_test(a_robbed_block_is_not_taken_for_another),
        cmocka_unit_test(blocks_beyond_the_windows_are_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
