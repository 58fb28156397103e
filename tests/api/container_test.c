/* Tests the codec functions of the C API without a communicator: encoded values decode again, and
 * anything else is refused. */
#include "api_kit.h"

#include <stdlib.h>
#include <string.h>

enum { count = 1000, most_bytes = 8 * count + 256 };

static float values[count], decoded[count];
static unsigned char bytes_of[most_bytes];

static void fill(void)
{
    size_t i;
    for (i = 0; i < count; i++) values[i] = (float)((int)(i * 7919 % 2001) - 1000) / 64;
}

static qcclCodec_t make(const char *spec)
{
    qcclCodec_t codec = NULL;
    if (qcclCodecCreate(&codec, spec) != qcclSuccess)
        fail_msg("%s: %s", spec, qcclGetLastError(NULL));
    return codec;
}

static size_t encode(qcclCodec_t codec)
{
    size_t most = 0, written = 0;
    assert_int_equal(qcclCodecMaxEncodedBytes(codec, count, qcclFloat32, &most), qcclSuccess);
    assert_true(most <= most_bytes);
    memset(bytes_of, 0xA5, sizeof bytes_of);
    assert_int_equal(
        qcclCodecEncode(codec, values, count, qcclFloat32, bytes_of, most, &written, NULL),
        qcclSuccess);
    assert_true(written > 0 && written <= most);
    if (most < most_bytes) assert_int_equal(bytes_of[most], 0xA5);
    return written;
}

static void every_codec_comes_back(void **state)
{
    static const struct {
        const char *spec;
        float error;
    } cases[] = {{"none", 0},
                 {"fp16", 0.01f},
                 {"bf16", 0.1f},
                 {"int12", 0.013f},
                 {"int10", 0.05f},
                 {"int8", 0.2f},
                 {"int6", 0.6f},
                 {"int5", 1.1f},
                 {"int4", 2.1f},
                 {"int3", 4.1f},
                 {"int2", 8.1f},
                 {"minmax", 0.07f},
                 {"minmax:bits=3,bucket=100,skip_incomplete=1", 2.5f},
                 {"int8:round=stochastic,seed=5", 0.3f}};
    size_t i, at;
    (void)state;
    fill();
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        qcclCodec_t codec = make(cases[i].spec);
        const size_t written = encode(codec);
        memset(decoded, 0xFF, sizeof decoded);
        assert_int_equal(
            qcclCodecDecode(codec, bytes_of, written, decoded, count, qcclFloat32, NULL),
            qcclSuccess);
        for (at = 0; at < count; at++) {
            const float error =
                decoded[at] > values[at] ? decoded[at] - values[at] : values[at] - decoded[at];
            if (!(error <= cases[i].error))
                fail_msg("%s: %g came back as %g", cases[i].spec, (double)values[at],
                         (double)decoded[at]);
        }
        assert_int_equal(qcclCodecDestroy(codec), qcclSuccess);
    }
}

/* Containers of codecs that pack are shorter for values that repeat, never longer, and hold the
 * same values as without packing. On a stream they are plain, because their size is known at once.
 */
static void packed_containers_come_back(void **state)
{
    static const char *const pairs[][2] = {
        {"lossless", "none"},
        {"int8:entropy=1", "int8"},
        {"minmax:bits=3,bucket=all,entropy=1", "minmax:bits=3,bucket=all"},
        {"bf16:entropy=1", "bf16"}};
    static float without[count];
    size_t i, at;
    (void)state;
    for (i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        qcclCodec_t packing = make(pairs[i][0]), plain = make(pairs[i][1]);
        qcclStream_t stream = NULL;
        size_t most = 0, packed, written = 0;
        for (at = 0; at < count; at++) values[at] = at % 50 == 0 ? -3.5f : 0.25f;
        written = encode(plain);
        assert_int_equal(
            qcclCodecDecode(plain, bytes_of, written, without, count, qcclFloat32, NULL),
            qcclSuccess);
        packed = encode(packing);
        assert_int_equal(qcclCodecMaxEncodedBytes(packing, count, qcclFloat32, &most), qcclSuccess);
        assert_true(packed < most && most == written);
        assert_int_equal(
            qcclCodecDecode(packing, bytes_of, packed, decoded, count, qcclFloat32, NULL),
            qcclSuccess);
        assert_memory_equal(decoded, without, sizeof decoded);
        assert_int_equal(
            qcclCodecDecode(packing, bytes_of, most, decoded, count, qcclFloat32, NULL),
            qcclDamagedData);
        assert_int_equal(
            qcclCodecDecode(plain, bytes_of, packed, decoded, count, qcclFloat32, NULL),
            qcclDamagedData);

        assert_int_equal(qcclStreamCreate(&stream), qcclSuccess);
        assert_int_equal(
            qcclCodecEncode(packing, values, count, qcclFloat32, bytes_of, most, &written, stream),
            qcclSuccess);
        assert_int_equal(written, most);
        memset(decoded, 0xFF, sizeof decoded);
        assert_int_equal(
            qcclCodecDecode(packing, bytes_of, written, decoded, count, qcclFloat32, stream),
            qcclSuccess);
        assert_int_equal(qcclStreamSynchronize(stream), qcclSuccess);
        assert_memory_equal(decoded, without, sizeof decoded);
        assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
        qcclCodecDestroy(packing);
        qcclCodecDestroy(plain);
    }
}

static void nothing_is_a_container_too(void **state)
{
    qcclCodec_t codec = make("int4");
    size_t most = 0, written = 0;
    (void)state;
    assert_int_equal(qcclCodecMaxEncodedBytes(codec, 0, qcclFloat32, &most), qcclSuccess);
    assert_int_equal(qcclCodecEncode(codec, NULL, 0, qcclFloat32, bytes_of, most, &written, NULL),
                     qcclSuccess);
    assert_int_equal(qcclCodecDecode(codec, bytes_of, written, NULL, 0, qcclFloat32, NULL),
                     qcclSuccess);
    qcclCodecDestroy(codec);
}

static void on_a_stream(void **state)
{
    qcclCodec_t codec = make("fp16");
    qcclStream_t stream = NULL;
    size_t written = 0;
    (void)state;
    fill();
    assert_int_equal(qcclStreamCreate(&stream), qcclSuccess);
    assert_int_equal(
        qcclCodecEncode(codec, values, count, qcclFloat32, bytes_of, most_bytes, &written, stream),
        qcclSuccess);
    assert_true(written > 2 * count);
    assert_int_equal(qcclCodecDecode(codec, bytes_of, written, decoded, count, qcclFloat32, stream),
                     qcclSuccess);
    assert_int_equal(qcclCodecDestroy(codec), qcclSuccess); /* pending calls keep a copy */
    assert_int_equal(qcclStreamSynchronize(stream), qcclSuccess);
    assert_true(decoded[3] == values[3]);
    assert_int_equal(qcclStreamDestroy(stream), qcclSuccess);
}

static void refused(qcclResult_t result, qcclResult_t expected, const char *part)
{
    if (result != expected) fail_msg("%d: %s", (int)result, qcclGetLastError(NULL));
    assert_says(qcclGetLastError(NULL), part);
}

static void wrong_arguments_are_named(void **state)
{
    qcclCodec_t codec = make("int8");
    size_t written = 77;
    (void)state;
    refused(qcclCodecEncode(NULL, values, 1, qcclFloat32, bytes_of, 99, &written, NULL),
            qcclInvalidArgument, "codec is NULL");
    refused(qcclCodecEncode(codec, values, 1, 99, bytes_of, 99, &written, NULL),
            qcclInvalidArgument, "type is 99");
    refused(qcclCodecEncode(codec, values, 1, qcclInt32, bytes_of, 99, &written, NULL),
            qcclInvalidArgument, "int32");
    refused(qcclCodecEncode(codec, values, SIZE_MAX, qcclFloat32, bytes_of, 99, &written, NULL),
            qcclInvalidArgument, "count is 18446744073709551615");
    refused(qcclCodecEncode(codec, NULL, 1, qcclFloat32, bytes_of, 999, &written, NULL),
            qcclInvalidArgument, "src is NULL");
    refused(qcclCodecEncode(codec, values, 1, qcclFloat32, NULL, 999, &written, NULL),
            qcclInvalidArgument, "dst is NULL");
    refused(qcclCodecEncode(codec, values, 1, qcclFloat32, bytes_of, 999, NULL, NULL),
            qcclInvalidArgument, "written_out is NULL");
    refused(qcclCodecEncode(codec, values, count, qcclFloat32, bytes_of, 100, &written, NULL),
            qcclInvalidArgument, "capacity is 100, but 1000 values of float with int8 need");
    assert_int_equal(qcclCodecMaxEncodedBytes(codec, count, qcclFloat32, &written), qcclSuccess);
    refused(
        qcclCodecEncode(codec, values, count, qcclFloat32, bytes_of, written - 1, &written, NULL),
        qcclInvalidArgument, "capacity is ");
    written = 77;
    refused(qcclCodecEncode(codec, values, count, qcclFloat32, values + 10, sizeof values, &written,
                            NULL),
            qcclInvalidArgument, "overlap");
    refused(qcclCodecDecode(codec, values, sizeof values, values + 1, 4, qcclFloat32, NULL),
            qcclInvalidArgument, "overlap");
    refused(qcclCodecDecode(codec, NULL, 100, decoded, 4, qcclFloat32, NULL), qcclInvalidArgument,
            "src is NULL");
    refused(qcclCodecMaxEncodedBytes(codec, 4, qcclFloat32, NULL), qcclInvalidArgument,
            "bytes_out is NULL");
    /* A size that does not fit 64 bits is refused, and the output is left alone. */
    size_t most = 77;
    refused(qcclCodecMaxEncodedBytes(codec, ((size_t)1 << 56) + 1, qcclFloat8e5m2, &most),
            qcclInvalidArgument, "memory can hold");
    assert_int_equal(most, 77);
    assert_int_equal(written, 77);
    qcclCodecDestroy(codec);
}

static void wrong_specs_are_refused(void **state)
{
    static const char *const specs[] = {
        "",
        "int9",
        "int1",
        "int0",
        "int4:block",
        "int4:block=0",
        "minmax:bits=0",
        "minmax:bits=9",
        "minmax:bucket=0",
        "int4:colour=red",
        "int4:round=up",
        "none:block=3",
    };
    qcclCodec_t codec = (qcclCodec_t)16;
    size_t i;
    (void)state;
    for (i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        if (qcclCodecCreate(&codec, specs[i]) != qcclInvalidArgument)
            fail_msg("\"%s\" was accepted", specs[i]);
        assert_true(strlen(qcclGetLastError(NULL)) > 10);
    }
    assert_ptr_equal(codec, (qcclCodec_t)16);
    refused(qcclCodecCreate(NULL, "int4"), qcclInvalidArgument, "codec_out is NULL");
    refused(qcclCodecCreate(&codec, NULL), qcclInvalidArgument, "spec is NULL");
    assert_int_equal(qcclCodecDestroy(NULL), qcclSuccess);
}

/* A flip of any bit of a container is detected. */
static void damage_is_seen(void **state)
{
    qcclCodec_t codec = make("minmax:bits=3"), other = make("minmax:bits=4");
    size_t written, bit;
    (void)state;
    fill();
    written = encode(codec);
    for (bit = 0; bit < 8 * written; bit++) {
        bytes_of[bit / 8] ^= (unsigned char)(1U << bit % 8);
        if (qcclCodecDecode(codec, bytes_of, written, decoded, count, qcclFloat32, NULL) !=
            qcclDamagedData)
            fail_msg("bit %zu may be flipped", bit);
        bytes_of[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
    for (bit = 0; bit < written; bit++)
        assert_int_equal(qcclCodecDecode(codec, bytes_of, bit, decoded, count, qcclFloat32, NULL),
                         qcclDamagedData);
    assert_int_equal(
        qcclCodecDecode(codec, bytes_of, written + 1, decoded, count, qcclFloat32, NULL),
        qcclDamagedData);
    assert_int_equal(
        qcclCodecDecode(codec, bytes_of, written, decoded, count - 1, qcclFloat32, NULL),
        qcclDamagedData);
    assert_int_equal(qcclCodecDecode(other, bytes_of, written, decoded, count, qcclFloat32, NULL),
                     qcclDamagedData);
    assert_int_equal(qcclCodecDecode(codec, bytes_of, written, decoded, count, qcclFloat32, NULL),
                     qcclSuccess);
    qcclCodecDestroy(codec);
    qcclCodecDestroy(other);
}

/* A budget codec is resolved for a collective, and there is no collective here. */
static void a_budget_encodes_nothing(void **state)
{
    static const char reason[] = "codec is auto:nmse=0.001, which is chosen for a collective";
    qcclCodec_t codec = make("auto:nmse=1e-3");
    size_t bytes = 7;
    (void)state;
    assert_int_equal(qcclCodecMaxEncodedBytes(codec, count, qcclFloat32, &bytes),
                     qcclInvalidArgument);
    assert_non_null(strstr(qcclGetLastError(NULL), reason));
    assert_int_equal(
        qcclCodecEncode(codec, values, count, qcclFloat32, bytes_of, most_bytes, &bytes, NULL),
        qcclInvalidArgument);
    assert_non_null(strstr(qcclGetLastError(NULL), reason));
    assert_int_equal(qcclCodecDecode(codec, bytes_of, 64, decoded, count, qcclFloat32, NULL),
                     qcclInvalidArgument);
    assert_non_null(strstr(qcclGetLastError(NULL), reason));
    assert_int_equal(bytes, 7);
    assert_int_equal(qcclCodecDestroy(codec), qcclSuccess);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_encodes_nothing),
        cmocka_unit_test(every_codec_comes_back),
        cmocka_unit_test(packed_containers_come_back),
        cmocka_unit_test(nothing_is_a_container_too),
        cmocka_unit_test(on_a_stream),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(wrong_specs_are_refused),
        cmocka_unit_test(damage_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
