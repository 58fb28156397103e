/* Tests refused arguments: the error has the name and the value of the
 * argument, the arguments are checked in the order of the function, and the
 * communicator still works afterwards. */
#include "api_kit.h"

#include <math.h>
#include <string.h>

enum { size = 2, count = 16 };

static float values[4 * count];

SHARED_WORLD(size)

/* Only rank 0 makes the call that is refused. If the refusal used up a call
 * number, the ranks would then be in different calls, and the calls that follow
 * would fail. */
static void refused(qcclResult_t result, qcclResult_t expected, const char *part)
{
    char sentence[sentence_bytes];
    strcpy(sentence, qcclGetLastError(NULL));
    if (result != expected) fail_msg("%d is not %d (%s)", (int)result, (int)expected, sentence);
    assert_says(sentence, part);
    assert_works(&world);
}

static qcclResult_t all_reduce(const void *send, void *recv, size_t n, qcclDataType_t type,
                               qcclRedOp_t op, qcclStream_t stream)
{
    return qcclAllReduce(send, recv, n, type, op, world.comms[0], stream);
}

static qcclResult_t with_config(const qcclCollConfig_t *config)
{
    return qcclAllReduceConfig(values, values, count, qcclFloat32, qcclSum, world.comms[0], NULL,
                               config);
}

static void handles(void **state)
{
    int64_t nothing[64] = {0};
    (void)state;
    refused(qcclAllReduce(values, values, count, qcclFloat32, qcclSum, NULL, NULL),
            qcclInvalidArgument, "comm is NULL");
    refused(qcclBarrier((qcclComm_t)nothing, NULL), qcclInvalidArgument, "is no communicator");
    refused(qcclBarrier((qcclComm_t)((char *)nothing + 1), NULL), qcclInvalidArgument,
            "is no communicator");
    refused(all_reduce(values, values, count, qcclFloat32, qcclSum, nothing), qcclInvalidArgument,
            "stream is 0x");
    refused(qcclStreamSynchronize(NULL), qcclInvalidArgument, "stream is NULL");
    refused(qcclStreamSynchronize(QCCL_STREAM_SYNC), qcclInvalidArgument,
            "stream is QCCL_STREAM_SYNC");
}

static void types_and_ops(void **state)
{
    (void)state;
    refused(all_reduce(values, values, count, 74, qcclSum, NULL), qcclInvalidArgument,
            "type is 74");
    refused(all_reduce(values, values, count, -1, qcclSum, NULL), qcclInvalidArgument,
            "type is -1");
    refused(all_reduce(values, values, count, qcclFloat32, 72, NULL), qcclInvalidArgument,
            "op is 72");
    refused(all_reduce(values, values, count, qcclFloat32, -7, NULL), qcclInvalidArgument,
            "op is -7");
    refused(qcclBroadcast(values, values, count, qcclFloat32, size, world.comms[0], NULL),
            qcclInvalidArgument, "root is 2, but the ranks are 0 to 1");
    refused(qcclBroadcast(values, values, count, qcclFloat32, -1, world.comms[0], NULL),
            qcclInvalidArgument, "root is -1");
    refused(qcclReduce(values, values, count, qcclFloat32, qcclSum, size, world.comms[0], NULL),
            qcclInvalidArgument, "root is 2, but the ranks are 0 to 1");
    refused(qcclReduce(values, values, count, qcclFloat32, 72, 0, world.comms[0], NULL),
            qcclInvalidArgument, "op is 72");
    refused(qcclGather(values, values, count, qcclFloat32, -1, world.comms[0], NULL),
            qcclInvalidArgument, "root is -1");
    refused(qcclScatter(values, values, count, 74, 0, world.comms[0], NULL), qcclInvalidArgument,
            "type is 74");
}

static void the_first_wrong_argument_is_named(void **state)
{
    int64_t nothing[64] = {0};
    (void)state;
    refused(all_reduce(NULL, NULL, SIZE_MAX, 99, 99, nothing), qcclInvalidArgument, "stream is");
    refused(all_reduce(NULL, NULL, SIZE_MAX, 99, 99, NULL), qcclInvalidArgument, "type is 99");
    refused(all_reduce(NULL, NULL, SIZE_MAX, qcclInt8, 99, NULL), qcclInvalidArgument, "op is 99");
    refused(all_reduce(NULL, NULL, SIZE_MAX, qcclInt8, qcclSum, NULL), qcclInvalidArgument,
            "count is 18446744073709551615");
    refused(all_reduce(NULL, NULL, count, qcclInt8, qcclSum, NULL), qcclInvalidArgument,
            "send is NULL");
}

static void counts(void **state)
{
    (void)state;
    refused(all_reduce(values, values, SIZE_MAX / 4, qcclFloat32, qcclSum, NULL),
            qcclInvalidArgument, "count is");
    refused(qcclReduceScatter(values, values, SIZE_MAX / 12, qcclFloat32, qcclSum, world.comms[0],
                              NULL),
            qcclInvalidArgument, "recv_count is");
    refused(qcclAllGather(values, values, SIZE_MAX / 12, qcclFloat32, world.comms[0], NULL),
            qcclInvalidArgument, "send_count is");
    refused(qcclGather(values, values, SIZE_MAX / 12, qcclFloat32, 0, world.comms[0], NULL),
            qcclInvalidArgument, "send_count is");
    refused(qcclScatter(values, values, SIZE_MAX / 12, qcclFloat32, 0, world.comms[0], NULL),
            qcclInvalidArgument, "recv_count is");
}

static void buffers(void **state)
{
    (void)state;
    refused(all_reduce(values, NULL, count, qcclFloat32, qcclSum, NULL), qcclInvalidArgument,
            "recv is NULL, but 64 bytes are to be there");
    refused(all_reduce(values, values + 1, count, qcclFloat32, qcclSum, NULL), qcclInvalidArgument,
            "overlap");
    refused(all_reduce(values + count - 1, values, count, qcclFloat32, qcclSum, NULL),
            qcclInvalidArgument, "overlap");
    /* The only in-place form of a reduce-scatter on rank 0 has recv at the
     * start of send. */
    refused(qcclReduceScatter(values, values + count, count, qcclFloat32, qcclSum, world.comms[0],
                              NULL),
            qcclInvalidArgument, "overlap");
    refused(qcclAllGather(values + count, values, count, qcclFloat32, world.comms[0], NULL),
            qcclInvalidArgument, "overlap");
    refused(qcclBroadcast(NULL, values, count, qcclFloat32, 0, world.comms[0], NULL),
            qcclInvalidArgument, "send is NULL");
    refused(qcclBroadcast(values, values + 1, count, qcclFloat32, 0, world.comms[0], NULL),
            qcclInvalidArgument, "overlap");
    refused(qcclReduce(values, NULL, count, qcclFloat32, qcclSum, 0, world.comms[0], NULL),
            qcclInvalidArgument, "recv is NULL");
    refused(qcclReduce(NULL, values, count, qcclFloat32, qcclSum, 1, world.comms[0], NULL),
            qcclInvalidArgument, "send is NULL");
    refused(qcclReduce(values, values + 1, count, qcclFloat32, qcclSum, 0, world.comms[0], NULL),
            qcclInvalidArgument, "overlap");
    refused(qcclGather(values + count, values, count, qcclFloat32, 0, world.comms[0], NULL),
            qcclInvalidArgument, "overlap");
    refused(qcclGather(NULL, values, count, qcclFloat32, 1, world.comms[0], NULL),
            qcclInvalidArgument, "send is NULL");
    refused(qcclScatter(values, values + count, count, qcclFloat32, 0, world.comms[0], NULL),
            qcclInvalidArgument, "overlap");
    refused(qcclScatter(values, NULL, count, qcclFloat32, 1, world.comms[0], NULL),
            qcclInvalidArgument, "recv is NULL");
}

static void buffers_of_exchanges(void **state)
{
    (void)state;
    refused(qcclAllToAll(values, values + 1, count / 2, qcclFloat32, world.comms[0], NULL),
            qcclInvalidArgument, "overlap");
    refused(qcclAllToAll(NULL, values, count, qcclFloat32, world.comms[0], NULL),
            qcclInvalidArgument, "send is NULL, but 128 bytes are to be there");
    refused(qcclAllToAll(values, NULL, count, qcclFloat32, world.comms[0], NULL),
            qcclInvalidArgument, "recv is NULL, but 128 bytes are to be there");
    refused(qcclAllToAll(values, values, SIZE_MAX / 12, qcclFloat32, world.comms[0], NULL),
            qcclInvalidArgument, "count is");
}

/* Only the root would hear of the error of a compressed reduce or gather. */
static void counts_and_displacements_of_v_forms(void **state)
{
    const qcclComm_t comm = world.comms[0]; /* rank 0 */
    const size_t fours[2] = {4, 4}, others[2] = {4, 5}, close[2] = {0, 3}, back[2] = {8, 4};
    const size_t huge[2] = {4, SIZE_MAX}, far[2] = {0, SIZE_MAX / 8};
    const size_t most[2] = {(size_t)1 << 56, 1};
    float *const a = values, *const b = values + 2 * count;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclCodec_t codec;
    (void)state;
    refused(qcclAllGatherV(a, b, NULL, NULL, qcclFloat32, comm, NULL), qcclInvalidArgument,
            "counts is NULL, but 2 counts are to be there");
    refused(qcclAllToAllV(a, fours, NULL, b, NULL, NULL, qcclFloat32, comm, NULL),
            qcclInvalidArgument, "recv_counts is NULL");
    refused(qcclAllGatherV(a, b, fours, close, qcclFloat32, comm, NULL), qcclInvalidArgument,
            "displs: the parts of rank 0 and of rank 1 overlap in recv");
    refused(qcclAllGatherV(a, b, huge, NULL, qcclFloat32, comm, NULL), qcclInvalidArgument,
            "counts[1] is 1844");
    refused(qcclScatterV(a, huge, NULL, b, 4, qcclFloat32, 0, comm, NULL), qcclInvalidArgument,
            "counts[1] is 1844");
    refused(qcclAllGatherV(a, b, fours, far, qcclFloat32, comm, NULL), qcclInvalidArgument,
            "counts[1] is 4, but the part begins at 2305843009213693951");
    refused(qcclReduceScatterV(a, b, most, NULL, qcclInt8, qcclSum, comm, NULL),
            qcclInvalidArgument,
            "counts: the parts up to rank 1 have 72057594037927937 values, and a call can have at "
            "most 72057594037927936 of int8");
    refused(qcclAllToAllV(a, fours, NULL, b, back, NULL, qcclFloat32, comm, NULL),
            qcclInvalidArgument, "send_counts[0] is 4, but recv_counts[0] is 8");
    refused(qcclGatherV(a, 3, b, fours, NULL, qcclFloat32, 0, comm, NULL), qcclInvalidArgument,
            "send_count is 3, but counts[0] is 4");
    refused(qcclScatterV(a, fours, NULL, b, 3, qcclFloat32, 0, comm, NULL), qcclInvalidArgument,
            "counts[0] is 4, but recv_count is 3");
    refused(qcclAllToAllV(a, fours, NULL, a, others, NULL, qcclFloat32, comm, NULL),
            qcclInvalidArgument,
            "send (part of rank 1) and recv (part of rank 1) overlap, but are not the same");
    refused(qcclAllToAllV(a, fours, NULL, a + 2, fours, NULL, qcclFloat32, comm, NULL),
            qcclInvalidArgument, "send (part of rank 0) and recv (part of rank 0) overlap");
    refused(qcclAllGatherV(NULL, b, fours, NULL, qcclFloat32, comm, NULL), qcclInvalidArgument,
            "send is NULL, but 16 bytes are to be there");
    refused(qcclGatherV(a, 4, b, fours, NULL, qcclFloat32, 2, comm, NULL), qcclInvalidArgument,
            "root is 2, but the ranks are 0 to 1");
    config.algorithm = "bruck";
    refused(qcclAllToAllVConfig(a, fours, NULL, b, fours, NULL, qcclFloat32, comm, NULL, &config),
            qcclInvalidArgument, "algorithm of all_to_all_v");
    config.algorithm = NULL;
    assert_int_equal(qcclCodecCreate(&codec, "int8:guard=nmse:1e-4"), qcclSuccess);
    config.codec = codec;
    refused(qcclAllGatherVConfig(a, b, fours, NULL, qcclFloat32, comm, NULL, &config),
            qcclInvalidArgument, "all_gather_v has no guards");
    assert_int_equal(qcclCodecDestroy(codec), qcclSuccess);
}

static void guards_of_calls_with_one_result(void **state)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    (void)state;
    assert_int_equal(qcclCodecCreate(&config.codec, "int8:guard=nmse:1e-3"), qcclSuccess);
    refused(qcclReduceConfig(values, values, count, qcclFloat32, qcclSum, 0, world.comms[0], NULL,
                             &config),
            qcclInvalidArgument, "in reduce some ranks hear of none");
    refused(qcclGatherConfig(values, values, 1, qcclFloat32, 0, world.comms[0], NULL, &config),
            qcclInvalidArgument, "in gather some ranks hear of none");
    refused(
        qcclScanConfig(values, values, count, qcclFloat32, qcclSum, world.comms[0], NULL, &config),
        qcclInvalidArgument, "in scan some ranks hear of none");
    qcclCodecDestroy(config.codec);
}

static void averages_of_prefixes(void **state)
{
    (void)state;
    refused(qcclScan(values, values, count, qcclFloat32, qcclAvg, world.comms[0], NULL),
            qcclInvalidArgument, "op is qcclAvg, which scan does not have");
    refused(qcclExscan(values, values, count, qcclFloat32, qcclAvg, world.comms[0], NULL),
            qcclInvalidArgument, "op is qcclAvg, which exscan does not have");
    refused(qcclScan(values, values + 1, count, qcclFloat32, qcclSum, world.comms[0], NULL),
            qcclInvalidArgument, "overlap");
    refused(qcclScan(values, NULL, count, qcclFloat32, qcclSum, world.comms[0], NULL),
            qcclInvalidArgument, "recv is NULL");
    refused(qcclExscan(values, NULL, count, qcclFloat32, qcclSum, world.comms[1], NULL),
            qcclInvalidArgument, "recv is NULL");
}

/* `assert_works` has just made a call with the same arguments except for the
 * buffers. The library does not check those arguments again, but checks the
 * buffers. */
static void buffers_of_a_call_that_is_repeated(void **state)
{
    double two[2] = {1, 1};
    (void)state;
    assert_works(&world);
    refused(qcclAllReduce(two, NULL, 1, qcclFloat64, qcclSum, world.comms[0], NULL),
            qcclInvalidArgument, "recv is NULL, but 8 bytes are to be there");
    refused(qcclAllReduce(two, (char *)two + 4, 1, qcclFloat64, qcclSum, world.comms[0], NULL),
            qcclInvalidArgument, "overlap");
}

static void configs(void **state)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    union {
        qcclCollConfig_t config;
        char bytes[sizeof(qcclCollConfig_t) + 32];
    } newer;
    (void)state;

    config.magic = 0;
    refused(with_config(&config), qcclInvalidArgument, "QCCL_COLL_CONFIG_INIT");
    config.magic = QCCL_CONFIG_MAGIC;
    config.size = 64;
    refused(with_config(&config), qcclInvalidArgument, "size is 64");
    config.size = (size_t)1 << 40;
    refused(with_config(&config), qcclInvalidArgument, "size is 1099511627776");
    config.size = sizeof config;
    config.reserved[0] = 1;
    refused(with_config(&config), qcclInvalidArgument, "byte 88 of the qcclCollConfig_t");
    config.reserved[0] = 0;
    config.timeout = NAN;
    refused(with_config(&config), qcclInvalidArgument, "timeout is not a number");

    memset(&newer, 0, sizeof newer);
    newer.config = (qcclCollConfig_t)QCCL_COLL_CONFIG_INIT;
    newer.config.size = sizeof newer;
    newer.config.version = 990000;
    newer.bytes[sizeof(qcclCollConfig_t) + 8] = 1;
    refused(with_config(&newer.config), qcclInvalidArgument, "made for version 990000");
}

static qcclResult_t on_zeros(int rank, qcclComm_t comm, void *context)
{
    float sum[count] = {0};
    (void)rank;
    return qcclAllReduceConfig(sum, sum, count, qcclFloat32, qcclSum, comm, NULL, context);
}

static void a_newer_config_that_says_nothing_new_is_accepted(void **state)
{
    union {
        qcclCollConfig_t config;
        char bytes[sizeof(qcclCollConfig_t) + 32];
    } newer;
    outcome_t outcome;
    (void)state;
    memset(&newer, 0, sizeof newer);
    newer.config = (qcclCollConfig_t)QCCL_COLL_CONFIG_INIT;
    newer.config.size = sizeof newer;
    outcome = on_every_rank(&world, on_zeros, &newer.config);
    assert_all_succeed(&outcome, size);
}

static void algorithms(void **state)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    (void)state;
    config.algorithm = "rang";
    refused(with_config(&config), qcclInvalidArgument,
            "algorithm of all_reduce is \"rang\"; possible are ");
    refused(qcclBarrierConfig(world.comms[0], NULL, &config), qcclInvalidArgument,
            "algorithm of barrier is \"rang\"; possible are oneshot, doubling");
    config.algorithm = "ring";
    refused(qcclBarrierConfig(world.comms[0], NULL, &config), qcclInvalidArgument,
            "algorithm of barrier is \"ring\"; possible are oneshot, doubling");
}

static void codecs(void **state)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    int64_t nothing[64] = {0};
    (void)state;
    config.codec = (qcclCodec_t)nothing;
    refused(with_config(&config), qcclInvalidArgument, "codec is 0x");
    assert_int_equal(qcclCodecCreate(&config.codec, "int4"), qcclSuccess);
    refused(qcclAllReduceConfig(values, values, count, qcclFloat32, qcclMax, world.comms[0], NULL,
                                &config),
            qcclInvalidArgument, "codec int4");
    refused(qcclAllReduceConfig(values, values, count, qcclInt32, qcclSum, world.comms[0], NULL,
                                &config),
            qcclInvalidArgument, "codec int4");
    refused(
        qcclAllGatherConfig(values, values, count / 2, qcclUint8, world.comms[0], NULL, &config),
        qcclInvalidArgument, "codec int4");
    refused(qcclBarrierConfig(world.comms[0], NULL, &config), qcclInvalidArgument,
            "a barrier has no values");
    assert_int_equal(qcclCodecDestroy(config.codec), qcclSuccess);
}

/* The cached check of an earlier call must not be used for a call with another
 * config. */
static void configs_of_a_call_that_is_repeated(void **state)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT, wrong;
    outcome_t outcome;
    (void)state;
    assert_int_equal(qcclCodecCreate(&config.codec, "int8:min=0"), qcclSuccess);
    config.algorithm = "ring";
    for (int i = 0; i < 2; i++) {
        outcome = on_every_rank(&world, on_zeros, &config);
        assert_all_succeed(&outcome, size);
    }
    wrong = config;
    wrong.algorithm = "";
    refused(with_config(&wrong), qcclInvalidArgument, "algorithm of all_reduce is \"\"");
    wrong.algorithm = "ring of a name that is longer than any that there are";
    refused(with_config(&wrong), qcclInvalidArgument, "algorithm of all_reduce is \"ring of");
    wrong = config;
    wrong.timeout = NAN;
    refused(with_config(&wrong), qcclInvalidArgument, "timeout is not a number");
    wrong = config;
    wrong.reserved[2] = 1;
    refused(with_config(&wrong), qcclInvalidArgument, "has no field there");
    wrong = (qcclCollConfig_t)QCCL_COLL_CONFIG_INIT;
    wrong.algorithm = "";
    refused(with_config(&wrong), qcclInvalidArgument, "algorithm of all_reduce is \"\"");
    assert_int_equal(qcclCodecDestroy(config.codec), qcclSuccess);
    refused(with_config(&config), qcclInvalidUsage, "which has been destroyed");
}

static void outputs(void **state)
{
    qcclErrorInfo_t info;
    qcclCommStats_t stats;
    size_t bytes = 0;
    char text[8];
    (void)state;
    memset(&info, 0, sizeof info);
    memset(&stats, 0, sizeof stats);
    refused(qcclGetErrorInfo(world.comms[0], &info), qcclInvalidArgument,
            "set size to sizeof(qcclErrorInfo_t)");
    refused(qcclCommGetStats(world.comms[0], &stats), qcclInvalidArgument,
            "set size to sizeof(qcclCommStats_t)");
    refused(qcclGetErrorInfo(world.comms[0], NULL), qcclInvalidArgument, "info_out is NULL");
    refused(qcclCommCount(world.comms[0], NULL), qcclInvalidArgument, "count_out is NULL");
    refused(qcclCommUserRank(world.comms[0], NULL), qcclInvalidArgument, "rank_out is NULL");
    refused(qcclCommGetAsyncError(world.comms[0], NULL), qcclInvalidArgument, "result_out is NULL");
    refused(qcclExplain(world.comms[0], "all_reduce", text, NULL), qcclInvalidArgument,
            "bytes is NULL");
    refused(qcclExplain(world.comms[0], NULL, text, &bytes), qcclInvalidArgument, "what is NULL");
    refused(qcclExplain(world.comms[0], "all_reduce speed=9", NULL, &bytes), qcclInvalidArgument,
            "\"speed=9\" is not understood");
    bytes = sizeof text;
    refused(qcclExplain(world.comms[0], "all_reduce bytes=1M", text, &bytes), qcclInvalidArgument,
            "buffer has 8 bytes");
    assert_true(bytes > sizeof text);
}

/* A refusal can be queried until the next call that succeeds. */
static void a_refusal_is_kept(void **state)
{
    qcclErrorInfo_t info;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    (void)state;
    assert_int_equal(all_reduce(values, values, count, 77, qcclSum, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(world.comms[0]), "type is 77");
    assert_int_equal(qcclGetErrorInfo(world.comms[0], &info), qcclSuccess);
    assert_int_equal(info.code, qcclInvalidArgument);
    assert_int_equal(info.rank, 0);
    assert_int_equal(info.peer, -1);
    assert_int_equal(info.collective, -1);
    assert_int_equal(info.call, 0);
    assert_int_equal(info.got, 77);

    /* Queries record their refusals too, except queries about errors, which
     * would overwrite what they report. */
    assert_int_equal(qcclCommCount(world.comms[0], NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(world.comms[0]), "count_out is NULL");
    assert_int_equal(qcclGetErrorInfo(world.comms[0], NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(world.comms[0]), "count_out is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles),
        cmocka_unit_test(types_and_ops),
        cmocka_unit_test(the_first_wrong_argument_is_named),
        cmocka_unit_test(counts),
        cmocka_unit_test(buffers),
        cmocka_unit_test(buffers_of_exchanges),
        cmocka_unit_test(counts_and_displacements_of_v_forms),
        cmocka_unit_test(guards_of_calls_with_one_result),
        cmocka_unit_test(averages_of_prefixes),
        cmocka_unit_test(buffers_of_a_call_that_is_repeated),
        cmocka_unit_test(configs),
        cmocka_unit_test(a_newer_config_that_says_nothing_new_is_accepted),
        cmocka_unit_test(algorithms),
        cmocka_unit_test(codecs),
        cmocka_unit_test(configs_of_a_call_that_is_repeated),
        cmocka_unit_test(outputs),
        cmocka_unit_test(a_refusal_is_kept),
    };
    return cmocka_run_group_tests(tests, make, end);
}
