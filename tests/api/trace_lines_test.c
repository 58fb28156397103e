/* Tests the lines of QCCL_DEBUG=trace: they show the calls that the program has made, also where
 * the library makes other ones for them. Runs on the host and, with ON_GPUS, on emulated GPUs. */
#include "tests/calls/tested_world.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { size = 3, count = 600, most_bytes = 8, most_text = 65536 };

static const struct {
    qcclDataType_t type;
    qcclRedOp_t op;
    const char *codec;
    const char *lines[2]; /* of the call, and perhaps of a second one */
} calls[] = {
    {qcclFloat32, qcclSum, NULL, {"all_reduce, count 600, type float, op sum, codec none, "}},
    {qcclFloat16,
     qcclAvg,
     "shared:bits=5,block=100,min=0",
     {"all_reduce, count 600, type half, op avg, "
      "codec scales of shared:bits=5,block=100, ",
      "all_reduce, count 600, type half, op avg, codec shared:bits=5,block=100, "}},
    {qcclComplex64,
     qcclSum,
     "shared:min=0",
     {"all_reduce, count 600, type complex64, op sum, codec scales of shared, ",
      "all_reduce, count 600, type complex64, op sum, codec shared, "}},
    {qcclComplex64,
     qcclSum,
     "int8:min=0",
     {"all_reduce, count 600, type complex64, op sum, codec int8, "}},
    {qcclInt32, qcclMax, NULL, {"all_reduce, count 600, type int32, op max, codec none, "}},
};
enum { kinds = sizeof calls / sizeof calls[0] };

static qcclResult_t make_calls(int rank, qcclComm_t comm, void *context)
{
    void *const values = take_bytes(rank, count * most_bytes);
    qcclResult_t result = qcclSuccess;
    size_t i;
    (void)context;
    memset(values, 0, count * most_bytes);
    for (i = 0; i < kinds && result == qcclSuccess; i++) {
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        if (calls[i].codec) result = qcclCodecCreate(&config.codec, calls[i].codec);
        if (result == qcclSuccess)
            result = qcclAllReduceConfig(values, values, count, calls[i].type, calls[i].op, comm,
                                         QCCL_STREAM_SYNC, &config);
        qcclCodecDestroy(config.codec);
    }
    if (result == qcclSuccess) result = qcclBarrier(comm, QCCL_STREAM_SYNC);
    give_memory(values);
    return result;
}

/* Returns what the ranks log at the level trace while they make the calls. */
static const char *traced(void)
{
    static char text[most_text];
    char path[] = "/tmp/qccl_trace_lines_XXXXXX";
    const int file = mkstemp(path);
    size_t bytes;
    world_t world;
    outcome_t outcome;
    assert_true(file >= 0);
    setenv("QCCL_DEBUG", "trace", 1);
    setenv("QCCL_DEBUG_FILE", path, 1);
    world = make_tested_world(size);
    outcome = on_every_rank(&world, make_calls, NULL);
    end_world(&world);
    assert_all_succeed(&outcome, size);
    bytes = (size_t)pread(file, text, most_text - 1, 0);
    assert_true(bytes < most_text - 1);
    close(file);
    unlink(path);
    return text;
}

static int lines_with(const char *text, const char *part)
{
    int found = 0;
    while ((text = strstr(text, part)) != NULL) {
        found++;
        text++;
    }
    return found;
}

static void lines_show_the_calls_of_the_program(void **state)
{
    const char *const text = traced();
    int number = 0, rank;
    size_t i, part;
    char line[256];
    (void)state;
    for (i = 0; i < kinds; i++)
        for (part = 0; part < 2 && calls[i].lines[part]; part++) {
            number++;
            for (rank = 0; rank < size; rank++) {
                snprintf(line, sizeof line, ":%d qccl trace: call %d begins: all_reduce\n", rank,
                         number);
                assert_int_equal(lines_with(text, line), 1);
                snprintf(line, sizeof line, ":%d qccl trace: call %d: %s", rank, number,
                         calls[i].lines[part]);
                if (lines_with(text, line) != 1) fail_msg("not one line \"%s\"", line);
            }
        }
    snprintf(line, sizeof line, "call %d: barrier, count 0, type none, op none, codec none, ",
             number + 1);
    assert_int_equal(lines_with(text, line), size);
    assert_int_equal(lines_with(text, "qccl trace: "), 2 * size * (number + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines_show_the_calls_of_the_program)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
