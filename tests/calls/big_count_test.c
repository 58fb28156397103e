/* Tests counts beyond 2^32 and vectors beyond 4 GiB in every collective, in little memory: a vector
 * is a view of a short block of memory that repeats, and so are the values. The length of the block
 * divides no power of two, so that a count or an offset that has lost its upper bits reads or
 * writes other values. All ranks reduce the same values by max, so that partial sums are those that
 * the block has anyway. A call takes seconds, so without QTEST_FULL=1 two of them are made. With
 * it, each is also made with results in memory that does not repeat, of which it takes up to 9 GiB.
 */
#include "tests/api/api_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sys/mman.h>
#include <unistd.h>

enum { ranks = 2, period = 4096 * 4099 }; /* 4099 is a prime */

#define BLOCK (((size_t)1 << 31) + 4099)
#define VECTOR (2 * BLOCK + 2)               /* more than 4 GiB */
#define FLOAT_BYTES (((size_t)1 << 33) + 64) /* of more than 2^31 floats */

/* A view of `bytes` bytes and one period more, over the memory of `file`. */
static unsigned char *view_of(int file, size_t bytes)
{
    const size_t whole = (bytes / period + 2) * period;
    size_t at;
    unsigned char *const start =
        mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) abort();
    for (at = 0; at < whole; at += period)
        if (mmap(start + at, period, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
            MAP_FAILED)
            abort();
    return start;
}

static int file_of(void)
{
    const int file = memfd_create("big", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, period) != 0) abort();
    return file;
}

/* Values are floats of whole numbers, which bf16 keeps, and their bytes are values of int8. */
static void fill(unsigned char *memory)
{
    size_t i;
    for (i = 0; i < period; i += sizeof(float)) {
        const float value = (float)((i * 2654435761u >> 8) % 251) - 125;
        memcpy(memory + i, &value, sizeof value);
    }
}

typedef struct {
    const struct big_call *call;
    unsigned char *values;         /* a view, which all ranks read */
    unsigned char *results[ranks]; /* views, or memory that does not repeat */
} run_t;

typedef struct big_call {
    const char *name;
    size_t bytes; /* of the result */
    /* By how many blocks the values of a rank's input and result lie behind those of the rank
     * before it. */
    size_t input_shift, result_shift;
    qcclResult_t (*call)(const void *send, void *recv, int rank, qcclComm_t comm);
} big_call_t;

static qcclResult_t all_reduce(const void *send, void *recv, int rank, qcclComm_t comm)
{
    (void)rank;
    return qcclAllReduce(send, recv, VECTOR, qcclInt8, qcclMax, comm, NULL);
}
static qcclResult_t all_reduce_floats(const void *send, void *recv, int rank, qcclComm_t comm)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclResult_t done = qcclCodecCreate(&config.codec, "bf16:min=0");
    (void)rank;
    if (done == qcclSuccess)
        done = qcclAllReduceConfig(send, recv, FLOAT_BYTES / sizeof(float), qcclFloat32, qcclMax,
                                   comm, NULL, &config);
    (void)qcclCodecDestroy(config.codec);
    return done;
}
static qcclResult_t reduce(const void *send, void *recv, int rank, qcclComm_t comm)
{
    (void)rank;
    return qcclReduce(send, recv, VECTOR, qcclInt8, qcclMax, 1, comm, NULL);
}
static qcclResult_t broadcast(const void *send, void *recv, int rank, qcclComm_t comm)
{
    (void)rank;
    return qcclBroadcast(send, recv, VECTOR, qcclUint8, 1, comm, NULL);
}
static qcclResult_t scan(const void *send, void *recv, int rank, qcclComm_t comm)
{
    (void)rank;
    return qcclScan(send, recv, VECTOR, qcclInt8, qcclMax, comm, NULL);
}
static qcclResult_t exscan(const void *send, void *recv, int rank, qcclComm_t comm)
{
    (void)rank;
    return qcclExscan(send, recv, VECTOR, qcclInt8, qcclMax, comm, NULL);
}
static qcclResult_t message(const void *send, void *recv, int rank, qcclComm_t comm)
{
    return rank == 0 ? qcclSend(send, VECTOR, qcclInt8, 1, comm, NULL)
                     : qcclRecv(recv, VECTOR, qcclInt8, 0, comm, NULL);
}
static qcclResult_t all_gather(const void *send, void *recv, int rank, qcclComm_t comm)
{
    (void)rank;
    return qcclAllGather(send, recv, BLOCK, qcclInt8, comm, NULL);
}
static qcclResult_t gather(const void *send, void *recv, int rank, qcclComm_t comm)
{
    (void)rank;
    return qcclGather(send, recv, BLOCK, qcclInt8, 1, comm, NULL);
}
static qcclResult_t reduce_scatter(const void *send, void *recv, int rank, qcclComm_t comm)
{
    (void)rank;
    return qcclReduceScatter(send, recv, BLOCK, qcclInt8, qcclMax, comm, NULL);
}
static qcclResult_t scatter(const void *send, void *recv, int rank, qcclComm_t comm)
{
    (void)rank;
    return qcclScatter(send, recv, BLOCK, qcclInt8, 0, comm, NULL);
}
static qcclResult_t all_to_all(const void *send, void *recv, int rank, qcclComm_t comm)
{
    (void)rank;
    return qcclAllToAll(send, recv, BLOCK, qcclInt8, comm, NULL);
}

/* One rank has everything, and the parts of the other one are behind it. */
static qcclResult_t all_gather_v(const void *send, void *recv, int rank, qcclComm_t comm)
{
    const size_t counts[ranks] = {BLOCK, VECTOR - BLOCK};
    (void)rank;
    return qcclAllGatherV(send, recv, counts, NULL, qcclInt8, comm, NULL);
}
static qcclResult_t gather_v(const void *send, void *recv, int rank, qcclComm_t comm)
{
    const size_t counts[ranks] = {BLOCK, VECTOR - BLOCK};
    return qcclGatherV(send, counts[rank], recv, counts, NULL, qcclInt8, 1, comm, NULL);
}
static qcclResult_t reduce_scatter_v(const void *send, void *recv, int rank, qcclComm_t comm)
{
    const size_t counts[ranks] = {BLOCK, VECTOR - BLOCK};
    (void)rank;
    return qcclReduceScatterV(send, recv, counts, NULL, qcclInt8, qcclMax, comm, NULL);
}
static qcclResult_t scatter_v(const void *send, void *recv, int rank, qcclComm_t comm)
{
    const size_t counts[ranks] = {BLOCK, VECTOR - BLOCK};
    return qcclScatterV(send, counts, NULL, recv, counts[rank], qcclInt8, 0, comm, NULL);
}
static qcclResult_t all_to_all_v(const void *send, void *recv, int rank, qcclComm_t comm)
{
    /* Rank 0 sends nearly all: a part lies at the same place on both ranks. */
    const size_t large = VECTOR - 3000;
    const size_t sent[ranks][ranks] = {{0, large}, {1000, 2000}};
    const size_t starts[ranks][ranks] = {{0, 0}, {large, large + 1000}};
    const size_t received[ranks] = {sent[0][rank], sent[1][rank]};
    const size_t places[ranks] = {starts[0][rank], starts[1][rank]};
    return qcclAllToAllV(send, sent[rank], starts[rank], recv, received, places, qcclInt8, comm,
                         NULL);
}
static const big_call_t calls[] = {
    {"all_reduce", VECTOR, 0, 0, all_reduce},
    {"all_reduce of floats", FLOAT_BYTES, 0, 0, all_reduce_floats},
    {"reduce", VECTOR, 0, 0, reduce},
    {"broadcast", VECTOR, 0, 0, broadcast},
    {"scan", VECTOR, 0, 0, scan},
    {"exscan", VECTOR, 0, 0, exscan},
    {"send", VECTOR, 0, 0, message},
    {"all_gather", 2 * BLOCK, 1, 0, all_gather},
    {"gather", 2 * BLOCK, 1, 0, gather},
    {"reduce_scatter", BLOCK, 0, 1, reduce_scatter},
    {"scatter", BLOCK, 0, 1, scatter},
    {"all_to_all", 2 * BLOCK, 1, 1, all_to_all},
    {"all_gather_v", VECTOR, 1, 0, all_gather_v},
    {"gather_v", VECTOR, 1, 0, gather_v},
    {"reduce_scatter_v", BLOCK, 0, 1, reduce_scatter_v},
    {"scatter_v", BLOCK, 0, 1, scatter_v},
    {"all_to_all_v", VECTOR, 0, 0, all_to_all_v},
};

/* Of some calls only rank 1 has a result, or nearly all of it. */
static int has_result(const char *name, int rank)
{
    static const char *const of_rank_1[] = {"reduce", "exscan",   "send",
                                            "gather", "gather_v", "all_to_all_v"};
    size_t i;
    for (i = 0; i < sizeof of_rank_1 / sizeof *of_rank_1; i++)
        if (strcmp(name, of_rank_1[i]) == 0) return rank == 1;
    return 1;
}

static qcclResult_t run_call(int rank, qcclComm_t comm, void *context)
{
    const run_t *const run = context;
    const big_call_t *const call = run->call;
    return call->call(run->values + call->input_shift * (size_t)rank * BLOCK % period,
                      run->results[rank] + call->result_shift * (size_t)rank * BLOCK % period, rank,
                      comm);
}

static void check_values(const run_t *run, int rank, size_t first, size_t bytes)
{
    const unsigned char *const result = run->results[rank];
    size_t at;
    if (memcmp(result + first, run->values + first, bytes) == 0) return;
    for (at = first; result[at] == run->values[at];) at++;
    fail_msg("%s: byte %zu of rank %d is %d, not %d", run->call->name, at, rank, result[at],
             run->values[at]);
}

static int is_full(void)
{
    const char *const full = getenv("QTEST_FULL");
    return full && strcmp(full, "1") == 0;
}

static void big_counts_lose_no_bits(void **state)
{
    const int values = file_of(), results[ranks] = {file_of(), file_of()};
    world_t world = make_world(ranks);
    run_t run;
    size_t i;
    int rank;
    (void)state;
    memset(&run, 0, sizeof run);
    run.values = view_of(values, FLOAT_BYTES);
    fill(run.values);
    for (rank = 0; rank < ranks; rank++) run.results[rank] = view_of(results[rank], FLOAT_BYTES);
    for (i = 0; i < sizeof calls / sizeof *calls; i++) {
        outcome_t outcome;
        if (!is_full() && calls[i].call != all_gather && calls[i].call != all_to_all_v) continue;
        run.call = &calls[i];
        for (rank = 0; rank < ranks; rank++) memset(run.results[rank], 0x55, period);
        outcome = on_every_rank(&world, run_call, &run);
        assert_all_succeed(&outcome, ranks);
        for (rank = 0; rank < ranks; rank++)
            if (has_result(calls[i].name, rank)) check_values(&run, rank, 0, period);
    }
    end_world(&world);
}

/* Results in memory of their own also show what was not written. */
static void every_byte_of_big_results_is_right(void **state)
{
    const int values = file_of();
    world_t world;
    run_t run;
    size_t i;
    int rank;
    (void)state;
    if (!is_full()) skip();
    world = make_world(ranks);
    memset(&run, 0, sizeof run);
    run.values = view_of(values, VECTOR);
    fill(run.values);
    for (i = 0; i < sizeof calls / sizeof *calls; i++) {
        const size_t whole = calls[i].bytes + period;
        outcome_t outcome;
        run.call = &calls[i];
        if (calls[i].bytes == FLOAT_BYTES) continue;
        for (rank = 0; rank < ranks; rank++) {
            run.results[rank] = mmap(NULL, whole, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            assert_true(run.results[rank] != MAP_FAILED);
        }
        outcome = on_every_rank(&world, run_call, &run);
        assert_all_succeed(&outcome, ranks);
        for (rank = 0; rank < ranks; rank++) {
            const size_t shift = calls[i].result_shift * (size_t)rank * BLOCK % period;
            const size_t bytes = strcmp(calls[i].name, "reduce_scatter_v") == 0 ||
                                         strcmp(calls[i].name, "scatter_v") == 0
                                     ? (rank == 0 ? BLOCK : VECTOR - BLOCK)
                                     : calls[i].bytes;
            if (has_result(calls[i].name, rank) && calls[i].call != all_to_all_v)
                check_values(&run, rank, shift, bytes);
            munmap(run.results[rank], whole);
        }
    }
    end_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(big_counts_lose_no_bits),
        cmocka_unit_test(every_byte_of_big_results_is_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
