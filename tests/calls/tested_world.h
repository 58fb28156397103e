/* Communicators and memory of a test that runs on the host and, with ON_GPUS, on emulated GPUs,
 * whose memory the host can read and write. Only the main thread makes communicators; any thread
 * takes and gives memory. */
#ifndef QCCL_TESTS_TESTED_WORLD_H
#define QCCL_TESTS_TESTED_WORLD_H

#include "tests/api/api_kit.h"

#include <stdlib.h>

#ifdef ON_GPUS
#include <qccl/emulated.h>

enum { on_gpus = 1, most_tested = 3 };

static world_t make_tested_world(int size)
{
    static const char *const devices[most_tested] = {"emulated:0", "emulated:1", "emulated:2"};
    world_t world;
    world.size = size;
    if (qcclCommInitAll(world.comms, size, devices) != qcclSuccess)
        fail_msg("%s", qcclGetLastError(NULL));
    return world;
}

static inline void *take_bytes(int rank, size_t bytes)
{
    void *memory = NULL;
    if (qcclEmulatedSetDevice(rank) != qcclEmulatedSuccess ||
        qcclEmulatedMalloc(&memory, bytes) != qcclEmulatedSuccess)
        abort();
    return memory;
}

/* Also checks that nothing was written beside the memory. */
static inline void give_memory(void *memory)
{
    if (qcclEmulatedFree(memory) != qcclEmulatedSuccess) abort();
}
#else
enum { on_gpus = 0, most_tested = 5 };

static world_t make_tested_world(int size) { return make_world(size); }

static inline void *take_bytes(int rank, size_t bytes)
{
    (void)rank;
    return malloc(bytes);
}

static inline void give_memory(void *memory) { free(memory); }
#endif

/* A value from -10 to 10 that follows from the number. */
static inline float drawn_value(uint32_t x)
{
    x ^= x >> 13;
    x *= 2246822519u;
    x ^= x >> 16;
    return (float)(int32_t)(x % 20001u) / 1000.0f - 10.0f;
}

/* Memory of values, and of one more, so that there is memory for none, too. */
static inline float *take_memory(int rank, size_t count)
{
    return take_bytes(rank, (count + 1) * sizeof(float));
}

#endif
