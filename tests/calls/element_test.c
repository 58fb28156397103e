/* Tests element types and operations beyond sums of numbers, with results worked by hand: 16-bit
 * integers, bits and truth values, complex numbers, and pairs of a value and an index. Tests which
 * operations a type takes, and that the refusal is the same everywhere. */
#include "tests/api/api_kit.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { size = 3, most_bytes = 64, encoded_reals = 1000 };

/* The type's row of the table at qcclRedOp_t. */
static int takes(qcclDataType_t type, qcclRedOp_t op)
{
    const int is_pair = type >= qcclFloatInt, is_bool = type == qcclBool;
    const int is_complex = type == qcclComplex64 || type == qcclComplex128;
    const int is_float = type >= qcclFloat16 && type <= qcclFloat8e5m2;
    if (op == qcclMinLoc || op == qcclMaxLoc) return is_pair;
    if (is_pair) return 0;
    if (op == qcclMax || op == qcclMin) return !is_complex;
    if (op <= qcclAvg) return !is_bool;
    return !is_float && !is_complex;
}

/* The next number; the library's own do not follow NCCL's. */
static qcclDataType_t type_after(qcclDataType_t type)
{
    return type == qcclFloat8e5m2 ? qcclInt16 : type + 1;
}
static qcclRedOp_t op_after(qcclRedOp_t op) { return op == qcclAvg ? qcclBitAnd : op + 1; }

/* A call in which each rank gives the same number of bytes. */
typedef struct {
    qcclDataType_t type;
    qcclRedOp_t op;
    size_t count, bytes;
    const void *inputs[size];
    int is_scan;
    unsigned char results[size][most_bytes];
} job_t;

static qcclResult_t reduce_job(int rank, qcclComm_t comm, void *context)
{
    job_t *job = context;
    return (job->is_scan ? qcclScan : qcclAllReduce)(job->inputs[rank], job->results[rank],
                                                     job->count, job->type, job->op, comm, NULL);
}

SHARED_WORLD(size)

/* Checks that every rank has exactly the expected bytes. */
static void reduces_to(job_t job, const void *expected)
{
    const outcome_t outcome = on_every_rank(&world, reduce_job, &job);
    int rank;
    assert_all_succeed(&outcome, size);
    for (rank = 0; rank < size; rank++) assert_memory_equal(job.results[rank], expected, job.bytes);
}

#define REDUCES(TYPE, OP, A, B, C, EXPECTED)                                                       \
    reduces_to((job_t){.type = (TYPE),                                                             \
                       .op = (OP),                                                                 \
                       .count = sizeof(A) / element_bytes(TYPE),                                   \
                       .bytes = sizeof(A),                                                         \
                       .inputs = {A, B, C}},                                                       \
               EXPECTED)

static size_t element_bytes(qcclDataType_t type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8,  8, 2, 4,  8,  2, 1,
                                   1, 2, 2, 8, 16, 1, 8, 16, 16, 8, 8};
    return bytes[type <= qcclFloat8e5m2 ? type : type - qcclInt16 + qcclFloat8e5m2 + 1];
}

static void integers_of_16_bits_wrap(void **state)
{
    const int16_t a[] = {32767, -5, 100}, b[] = {1, 2, -300}, c[] = {0, 4, 50};
    const int16_t sums[] = {-32768, 1, -150}, products[] = {0, -40, 7328},
                  averages[] = {-10922, 0, -50};
    const uint16_t d[] = {65535, 7}, e[] = {2, 3}, f[] = {0, 1};
    const uint16_t largest[] = {65535, 7}, smallest[] = {0, 1};
    (void)state;
    REDUCES(qcclInt16, qcclSum, a, b, c, sums);
    REDUCES(qcclInt16, qcclProd, a, b, c, products);
    REDUCES(qcclInt16, qcclAvg, a, b, c, averages);
    REDUCES(qcclUint16, qcclMax, d, e, f, largest);
    REDUCES(qcclUint16, qcclMin, d, e, f, smallest);
}

static void bits_and_truth_of_integers(void **state)
{
    const uint32_t a[] = {0xFF00FF00, 0, 4}, b[] = {0x0FF00FF0, 0, 2}, c[] = {0x00FFFF00, 8, 1};
    const uint32_t ands[] = {0x00000F00, 0, 0}, ors[] = {0xFFFFFFF0, 8, 7},
                   xors[] = {0xF00F0FF0, 8, 7};
    const uint32_t both[] = {1, 0, 1}, any[] = {1, 1, 1}, odd[] = {1, 1, 1};
    const int64_t large[] = {INT64_MIN}, none[] = {0}, one[] = {1};
    (void)state;
    REDUCES(qcclUint32, qcclBitAnd, a, b, c, ands);
    REDUCES(qcclUint32, qcclBitOr, a, b, c, ors);
    REDUCES(qcclUint32, qcclBitXor, a, b, c, xors);
    REDUCES(qcclUint32, qcclLogicalAnd, a, b, c, both);
    REDUCES(qcclUint32, qcclLogicalOr, a, b, c, any);
    REDUCES(qcclUint32, qcclLogicalXor, a, b, c, odd);
    REDUCES(qcclInt64, qcclLogicalAnd, large, large, large, one);
    REDUCES(qcclInt64, qcclLogicalXor, large, none, large, none);
}

static void results_of_bools_are_0_or_1(void **state)
{
    const uint8_t a[] = {0, 2, 128, 1}, b[] = {0, 0, 64, 1}, c[] = {0, 0, 1, 0};
    const uint8_t all[] = {0, 0, 1, 0}, any[] = {0, 1, 1, 1}, odd[] = {0, 1, 1, 0};
    const qcclRedOp_t and_ops[] = {qcclMin, qcclBitAnd, qcclLogicalAnd};
    const qcclRedOp_t or_ops[] = {qcclMax, qcclBitOr, qcclLogicalOr};
    int i;
    (void)state;
    for (i = 0; i < 3; i++) {
        REDUCES(qcclBool, and_ops[i], a, b, c, all);
        REDUCES(qcclBool, or_ops[i], a, b, c, any);
    }
    REDUCES(qcclBool, qcclBitXor, a, b, c, odd);
    REDUCES(qcclBool, qcclLogicalXor, a, b, c, odd);
}

static void complex_numbers(void **state)
{
    const float a[] = {1, 2}, b[] = {3, -1}, c[] = {0.5F, 2};
    const float sum[] = {4.5F, 3}, product[] = {-7.5F, 12.5F}, average[] = {1.5F, 1};
    const double d[] = {1, 2, 0, 1}, e[] = {3, -1, 0, 1}, f[] = {0.5, 2, 0, 1};
    const double sums[] = {4.5, 3, 0, 3}, products[] = {-7.5, 12.5, -0.0, -1};
    (void)state;
    REDUCES(qcclComplex64, qcclSum, a, b, c, sum);
    REDUCES(qcclComplex64, qcclProd, a, b, c, product);
    REDUCES(qcclComplex64, qcclAvg, a, b, c, average);
    REDUCES(qcclComplex128, qcclSum, d, e, f, sums);
    REDUCES(qcclComplex128, qcclProd, d, e, f, products);
}

typedef struct {
    double value;
    int32_t index;
} double_int_t;
typedef struct {
    int16_t value;
    int32_t index;
} short_int_t;

/* Returns a pair whose padding has the byte `padding`. */
static double_int_t pair_of(double value, int32_t index, int padding)
{
    double_int_t pair;
    memset(&pair, padding, sizeof pair);
    memcpy(&pair.value, &value, sizeof value);
    memcpy(&pair.index, &index, sizeof index);
    return pair;
}

static void check_pairs(qcclRedOp_t op, double_int_t a, double_int_t b, double_int_t c,
                        double value, int32_t index)
{
    const double_int_t as[] = {a}, bs[] = {b}, cs[] = {c}, expected = pair_of(value, index, 0);
    REDUCES(qcclDoubleInt, op, as, bs, cs, &expected);
    REDUCES(qcclDoubleInt, op, cs, as, bs, &expected);
    REDUCES(qcclDoubleInt, op, bs, cs, as, &expected);
}

static void pairs_of_doubles(void **state)
{
    const double nan = NAN;
    (void)state;
    check_pairs(qcclMinLoc, pair_of(3, 0, 1), pair_of(-2, 1, 2), pair_of(5, 2, 3), -2, 1);
    check_pairs(qcclMaxLoc, pair_of(3, 0, 1), pair_of(-2, 1, 2), pair_of(5, 2, 3), 5, 2);
    /* The smallest index of equal values, and zeros are equal. */
    check_pairs(qcclMinLoc, pair_of(3, 9, 1), pair_of(3, -7, 2), pair_of(5, -8, 3), 3, -7);
    check_pairs(qcclMaxLoc, pair_of(5, 9, 1), pair_of(5, 8, 2), pair_of(-5, 1, 3), 5, 8);
    check_pairs(qcclMinLoc, pair_of(0.0, 1, 1), pair_of(-0.0, 2, 2), pair_of(1, 0, 3), 0.0, 1);
    check_pairs(qcclMaxLoc, pair_of(0.0, 2, 1), pair_of(-0.0, 1, 2), pair_of(-1, 0, 3), -0.0, 1);
    check_pairs(qcclMinLoc, pair_of(0.0, 1, 1), pair_of(-0.0, 1, 2), pair_of(1, 0, 3), -0.0, 1);
    check_pairs(qcclMaxLoc, pair_of(0.0, 1, 1), pair_of(-0.0, 1, 2), pair_of(-1, 0, 3), 0.0, 1);
    /* A NaN, with the smallest index that a NaN has. */
    check_pairs(qcclMinLoc, pair_of(nan, 4, 1), pair_of(-nan, 3, 2), pair_of(-1, 0, 3), nan, 3);
    check_pairs(qcclMaxLoc, pair_of(nan, 4, 1), pair_of(8, 0, 2), pair_of(9, 1, 3), nan, 4);
}

static void pairs_of_integers(void **state)
{
    const int32_t a[] = {INT32_MIN, 5, 7, 1}, b[] = {INT32_MIN, 4, 7, 0}, c[] = {0, 0, 6, 2};
    const int32_t least[] = {INT32_MIN, 4, 6, 2}, most[] = {0, 0, 7, 0};
    const struct {
        int64_t value, index;
    } d[] = {{INT64_MAX, 3}}, e[] = {{INT64_MAX, 2}}, f[] = {{INT64_MAX - 1, 1}};
    const float g[] = {1.5F, 0}, h[] = {-1.5F, 0}, i[] = {0, 0};
    short_int_t j[1], k[1], l[1], smallest[1];
    (void)state;
    REDUCES(qcclIntInt, qcclMinLoc, a, b, c, least);
    REDUCES(qcclIntInt, qcclMaxLoc, a, b, c, most);
    REDUCES(qcclLongInt, qcclMaxLoc, d, e, f, e);
    REDUCES(qcclLongInt, qcclMinLoc, d, e, f, f);
    REDUCES(qcclFloatInt, qcclMinLoc, g, h, i, h);
    memset(j, 0xA5, sizeof j);
    memset(k, 0x5A, sizeof k);
    memset(l, 0xFF, sizeof l);
    memset(smallest, 0, sizeof smallest);
    j[0].value = smallest[0].value = -300;
    k[0].value = 300;
    l[0].value = 0;
    j[0].index = smallest[0].index = 11;
    k[0].index = l[0].index = 2;
    REDUCES(qcclShortInt, qcclMinLoc, j, k, l, smallest);
}

/* A result that covers one rank's values keeps all of their bits. */
static void values_of_one_rank_are_copied(void **state)
{
    const uint8_t a[] = {0, 128}, b[] = {64, 0}, c[] = {0, 0}, expected[] = {1, 1};
    world_t alone = make_world(1);
    uint8_t result[2] = {0};
    job_t job = {.type = qcclBool,
                 .op = qcclLogicalOr,
                 .count = 2,
                 .bytes = 2,
                 .inputs = {a, b, c},
                 .is_scan = 1};
    const outcome_t outcome = on_every_rank(&world, reduce_job, &job);
    (void)state;
    assert_all_succeed(&outcome, size);
    assert_memory_equal(job.results[0], a, 2);
    assert_memory_equal(job.results[1], expected, 2);
    assert_memory_equal(job.results[2], expected, 2);
    assert_int_equal(qcclAllReduce(a, result, 2, qcclBool, qcclMax, alone.comms[0], NULL),
                     qcclSuccess);
    assert_memory_equal(result, a, 2);
    end_world(&alone);
}

/* What a codec does with complex numbers. */
typedef struct {
    qcclDataType_t type;
    int is_repeated;
    qcclCollConfig_t config;
    float results[size][encoded_reals];
} coded_t;

static qcclResult_t sum_coded(int rank, qcclComm_t comm, void *context)
{
    coded_t *coded = context;
    float send[encoded_reals];
    const size_t count = encoded_reals / (coded->type == qcclComplex64 ? 2 : 1);
    qcclResult_t result;
    int i;
    for (i = 0; i < encoded_reals; i++) send[i] = (float)((i * 7 + rank * 3) % 50) / 8;
    result = qcclAllReduceConfig(send, coded->results[rank], count, coded->type, qcclSum, comm,
                                 NULL, &coded->config);
    if (result != qcclSuccess || !coded->is_repeated) return result;
    return qcclAllReduceConfig(send, coded->results[rank], count, coded->type, qcclSum, comm, NULL,
                               &coded->config);
}

static void codecs_see_complex_numbers_as_reals(void **state)
{
    coded_t reals = {.type = qcclFloat32, .config = QCCL_COLL_CONFIG_INIT};
    coded_t numbers = {.type = qcclComplex64, .is_repeated = 1, .config = QCCL_COLL_CONFIG_INIT};
    unsigned char as_reals[4096], as_numbers[4096];
    float decoded[encoded_reals];
    size_t bytes = 0, most = 0, written = 0;
    outcome_t outcome;
    (void)state;
    assert_int_equal(qcclCodecCreate(&reals.config.codec, "int8"), qcclSuccess);
    numbers.config.codec = reals.config.codec;
    outcome = on_every_rank(&world, sum_coded, &reals);
    assert_all_succeed(&outcome, size);
    outcome = on_every_rank(&world, sum_coded, &numbers);
    assert_all_succeed(&outcome, size);
    assert_memory_equal(reals.results, numbers.results, sizeof reals.results);

    assert_int_equal(
        qcclCodecMaxEncodedBytes(reals.config.codec, encoded_reals / 2, qcclComplex64, &most),
        qcclSuccess);
    assert_true(most <= sizeof as_numbers);
    assert_int_equal(qcclCodecEncode(reals.config.codec, reals.results[0], encoded_reals,
                                     qcclFloat32, as_reals, sizeof as_reals, &bytes, NULL),
                     qcclSuccess);
    assert_int_equal(qcclCodecEncode(reals.config.codec, reals.results[0], encoded_reals / 2,
                                     qcclComplex64, as_numbers, sizeof as_numbers, &written, NULL),
                     qcclSuccess);
    assert_int_equal(written, bytes);
    assert_int_equal(written, most);
    assert_memory_equal(as_reals, as_numbers, bytes);
    assert_int_equal(qcclCodecDecode(reals.config.codec, as_numbers, written, decoded,
                                     encoded_reals / 2, qcclComplex64, NULL),
                     qcclSuccess);
    assert_int_equal(qcclAllReduceConfig(decoded, decoded, 2, qcclComplex64, qcclProd,
                                         world.comms[0], NULL, &numbers.config),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "codec int8: complex64 values");
    assert_works(&world);
    qcclCodecDestroy(reals.config.codec);
}

static qcclResult_t move_all(int rank, qcclComm_t comm, void *context)
{
    unsigned char send[4][16], recv[size][4][16];
    qcclDataType_t type;
    (void)context;
    for (type = qcclInt8; type <= qcclShortInt; type = type_after(type)) {
        const size_t bytes = 4 * element_bytes(type);
        int r;
        memset(send, 0x90 + rank, sizeof send);
        if (qcclAllGather(send, recv, 4, type, comm, NULL) != qcclSuccess) return qcclInternalError;
        for (r = 0; r < size; r++) {
            memset(send, 0x90 + r, sizeof send);
            if (memcmp((unsigned char *)recv + (size_t)r * bytes, send, bytes) != 0)
                return qcclInternalError;
        }
    }
    return qcclSuccess;
}

/* Encoded, the same bytes as rank 0's complex numbers: the callers still disagree. */
static qcclResult_t with_reals_elsewhere(int rank, qcclComm_t comm, void *context)
{
    const int is_fused = *(const int *)context;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    float values[2][encoded_reals] = {{0}};
    const size_t count = encoded_reals / (rank == 0 ? 2 : 1);
    const qcclDataType_t type = rank == 0 ? qcclComplex64 : qcclFloat32;
    qcclResult_t result = qcclSuccess;
    int i;
    qcclCodecCreate(&config.codec, "int8:min=0");
    if (is_fused) result = qcclGroupStart();
    for (i = 0; i <= is_fused && result == qcclSuccess; i++)
        result =
            qcclAllReduceConfig(values[i], values[i], count, type, qcclSum, comm, NULL, &config);
    if (is_fused && result == qcclSuccess) result = qcclGroupEnd();
    qcclCodecDestroy(config.codec);
    return result;
}

static void encoded_reals_are_no_complex_numbers(void **state)
{
    int is_fused;
    (void)state;
    for (is_fused = 0; is_fused < 2; is_fused++) {
        world_t other = join_world(size, NULL);
        const outcome_t outcome = on_every_rank(&other, with_reals_elsewhere, &is_fused);
        assert_all_say(&outcome, size, qcclMismatch, "rank 1 calls all_reduce with count");
        end_world(&other);
    }
}

static void every_type_is_moved(void **state)
{
    const outcome_t outcome = on_every_rank(&world, move_all, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
}

static qcclResult_t reduce_all(int rank, qcclComm_t comm, void *context)
{
    _Alignas(16) unsigned char buffer[5 * 16] = {0};
    qcclDataType_t type;
    qcclRedOp_t op;
    (void)rank;
    (void)context;
    for (type = qcclInt8; type <= qcclShortInt; type = type_after(type))
        for (op = qcclSum; op <= qcclMaxLoc; op = op_after(op)) {
            const qcclResult_t result = qcclAllReduce(buffer, buffer, 5, type, op, comm, NULL);
            if (result != (takes(type, op) ? qcclSuccess : qcclInvalidArgument))
                return qcclInternalError;
        }
    return qcclSuccess;
}

static void types_take_their_operations(void **state)
{
    const outcome_t outcome = on_every_rank(&world, reduce_all, NULL);
    (void)state;
    assert_all_succeed(&outcome, size);
}

static void refused(qcclResult_t result, const char *part)
{
    assert_int_equal(result, qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), part);
    assert_works(&world);
}

static void the_refusal_is_the_same_everywhere(void **state)
{
    static const char bits[] = "op is bitxor, which float values do not have; possible are sum, "
                               "prod, max, min, avg";
    static const char order[] = "op is max, which complex64 values do not have; possible are sum, "
                                "prod, avg";
    qcclComm_t comm = world.comms[0];
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclColl_t call = NULL;
    float values[16] = {0};
    char text[16];
    size_t bytes = sizeof text;
    (void)state;
    refused(qcclAllReduce(values, values, 2, qcclFloat32, qcclBitXor, comm, NULL), bits);
    refused(qcclReduce(values, values, 2, qcclFloat32, qcclBitXor, 0, comm, NULL), bits);
    refused(qcclReduceScatter(values, values, 2, qcclFloat32, qcclBitXor, comm, NULL), bits);
    refused(qcclScan(values, values, 2, qcclFloat32, qcclBitXor, comm, NULL), bits);
    refused(qcclExscan(values, values, 2, qcclComplex64, qcclMax, comm, NULL), order);
    refused(qcclCollCreate(&call, qcclCollAllReduce, values, values, 2, qcclComplex64, qcclMax, 0,
                           comm, NULL, NULL),
            order);
    refused(qcclExplain(comm, "all_reduce bytes=8 type=complex64 op=max", text, &bytes), order);
    refused(qcclAllReduce(values, values, 2, qcclBool, qcclSum, comm, NULL),
            "op is sum, which bool values do not have");
    refused(qcclAllReduce(values, values, 2, qcclFloatInt, qcclMin, comm, NULL),
            "op is min, which float_int values do not have; possible are minloc, maxloc");
    refused(qcclAllReduce(values, values, 2, 74, qcclSum, comm, NULL),
            "type is 74; possible are 0 (qcclInt8) to 11 (qcclFloat8e5m2) and 64 (qcclInt16) to "
            "73 (qcclShortInt)");
    refused(qcclAllReduce(values, values, 2, qcclInt16, 72, comm, NULL),
            "op is 72; possible are 0 (qcclSum) to 4 (qcclAvg), 64 (qcclBitAnd) to 71 "
            "(qcclMaxLoc)");
    assert_int_equal(qcclCodecCreate(&config.codec, "int8"), qcclSuccess);
    refused(qcclAllReduceConfig(values, values, 2, qcclInt16, qcclSum, comm, NULL, &config),
            "codec int8: int16 values travel as they are, only floating point is encoded");
    qcclCodecDestroy(config.codec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_of_16_bits_wrap),
        cmocka_unit_test(bits_and_truth_of_integers),
        cmocka_unit_test(results_of_bools_are_0_or_1),
        cmocka_unit_test(complex_numbers),
        cmocka_unit_test(pairs_of_doubles),
        cmocka_unit_test(pairs_of_integers),
        cmocka_unit_test(values_of_one_rank_are_copied),
        cmocka_unit_test(codecs_see_complex_numbers_as_reals),
        cmocka_unit_test(encoded_reals_are_no_complex_numbers),
        cmocka_unit_test(every_type_is_moved),
        cmocka_unit_test(types_take_their_operations),
        cmocka_unit_test(the_refusal_is_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, make, end);
}
