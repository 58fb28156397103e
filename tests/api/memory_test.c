/* Tests qcclMemAlloc and qcclMemFree: the memory serves in calls, all of it is
 * allocated at once, and qcclMemFree recognizes it. */
#include "api_kit.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void memory_serves_and_is_freed_once(void **state)
{
    world_t world = make_world(1);
    void *memory = NULL;
    char on_stack[64];
    (void)state;
    assert_int_equal(qcclMemAlloc(&memory, 100000), qcclSuccess);
    assert_int_equal((uintptr_t)memory % 4096, 0);
    memset(memory, 1, 100000);
    assert_int_equal(qcclAllReduce(memory, memory, 25000, qcclInt32, qcclSum, world.comms[0], NULL),
                     qcclSuccess);
    assert_int_equal(qcclMemFree((char *)memory + 4096), qcclInvalidArgument);
    assert_int_equal(qcclMemFree(on_stack), qcclInvalidArgument);
    assert_int_equal(qcclMemFree((void *)4096), qcclInvalidArgument);
    assert_int_equal(qcclMemFree(memory), qcclSuccess);
    assert_int_equal(qcclMemFree(memory), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "pointer is 0x");
    assert_int_equal(qcclMemFree(NULL), qcclSuccess);
    assert_int_equal(qcclMemAlloc(&memory, 0), qcclInvalidArgument);
    assert_int_equal(qcclMemAlloc(NULL, 1), qcclInvalidArgument);
    assert_int_equal(qcclMemAlloc(&memory, SIZE_MAX), qcclInvalidArgument);
    assert_int_equal(qcclMemAlloc(&memory, (size_t)1 << 60), qcclSystemError);
    assert_says(qcclGetLastError(NULL), "cannot get 1099511627776.0 MiB of shared memory");
    end_world(&world);
}

static size_t bytes_of_the_machine(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

/* A lack of memory is an error, never a signal: neither that of a first touch
 * of missing memory nor that of a file that is too large. */
static void too_little_memory_for_buffers_is_told(void **state)
{
    struct rlimit before, low;
    void *memory = NULL;
    (void)state;
    assert_int_equal(qcclMemAlloc(&memory, bytes_of_the_machine() - (1 << 20)), qcclSystemError);
    assert_says(qcclGetLastError(NULL), "Cannot allocate memory");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    low = before;
    low.rlim_cur = 1 << 20;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    assert_int_equal(qcclMemAlloc(&memory, 1 << 20), qcclSystemError);
    assert_says(qcclGetLastError(NULL), "ulimit -f");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_null(memory);
}

static void leave_no_descriptor(struct rlimit *before)
{
    struct rlimit none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
    none = *before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}

/* qcclMemFree recognizes memory even if no descriptor is free. */
static void memory_is_freed_without_descriptors(void **state)
{
    struct rlimit before;
    void *memory = NULL;
    qcclResult_t freed, refused;
    (void)state;
    assert_int_equal(qcclMemAlloc(&memory, 4096), qcclSuccess);
    leave_no_descriptor(&before);
    freed = qcclMemFree(memory);
    refused = qcclMemFree(memory);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(freed, qcclSuccess);
    assert_int_equal(refused, qcclInvalidArgument);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_serves_and_is_freed_once),
        cmocka_unit_test(too_little_memory_for_buffers_is_told),
        cmocka_unit_test(memory_is_freed_without_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
