/* Tests include/qccl/qccl.h: the numbers, sizes and offsets of release 0.1 never change. New fields
 * replace reserved words, and new values get new numbers. The static assertions are checked at
 * compile time; the tests that run compare the initialisers with qcclConfigInit. */
#include <qccl/qccl.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#define NEVER_CHANGES(what, value)                                                                 \
    _Static_assert((what) == (value), "the ABI of release 0.1 has changed")

NEVER_CHANGES(qcclSuccess, 0);
NEVER_CHANGES(qcclUnhandledDeviceError, 1);
NEVER_CHANGES(qcclSystemError, 2);
NEVER_CHANGES(qcclInternalError, 3);
NEVER_CHANGES(qcclInvalidArgument, 4);
NEVER_CHANGES(qcclInvalidUsage, 5);
NEVER_CHANGES(qcclRemoteError, 6);
NEVER_CHANGES(qcclInProgress, 7);
NEVER_CHANGES(qcclTimeout, 8);
NEVER_CHANGES(qcclMismatch, 64);
NEVER_CHANGES(qcclPeerLost, 65);
NEVER_CHANGES(qcclRevoked, 66);
NEVER_CHANGES(qcclDamagedData, 67);

NEVER_CHANGES(qcclInt8, 0);
NEVER_CHANGES(qcclUint8, 1);
NEVER_CHANGES(qcclInt32, 2);
NEVER_CHANGES(qcclUint32, 3);
NEVER_CHANGES(qcclInt64, 4);
NEVER_CHANGES(qcclUint64, 5);
NEVER_CHANGES(qcclFloat16, 6);
NEVER_CHANGES(qcclFloat32, 7);
NEVER_CHANGES(qcclFloat64, 8);
NEVER_CHANGES(qcclBfloat16, 9);
NEVER_CHANGES(qcclFloat8e4m3, 10);
NEVER_CHANGES(qcclFloat8e5m2, 11);
NEVER_CHANGES(qcclInt16, 64);
NEVER_CHANGES(qcclUint16, 65);
NEVER_CHANGES(qcclComplex64, 66);
NEVER_CHANGES(qcclComplex128, 67);
NEVER_CHANGES(qcclBool, 68);
NEVER_CHANGES(qcclFloatInt, 69);
NEVER_CHANGES(qcclDoubleInt, 70);
NEVER_CHANGES(qcclLongInt, 71);
NEVER_CHANGES(qcclIntInt, 72);
NEVER_CHANGES(qcclShortInt, 73);

NEVER_CHANGES(qcclSum, 0);
NEVER_CHANGES(qcclProd, 1);
NEVER_CHANGES(qcclMax, 2);
NEVER_CHANGES(qcclMin, 3);
NEVER_CHANGES(qcclAvg, 4);
NEVER_CHANGES(qcclBitAnd, 64);
NEVER_CHANGES(qcclBitOr, 65);
NEVER_CHANGES(qcclBitXor, 66);
NEVER_CHANGES(qcclLogicalAnd, 67);
NEVER_CHANGES(qcclLogicalOr, 68);
NEVER_CHANGES(qcclLogicalXor, 69);
NEVER_CHANGES(qcclMinLoc, 70);
NEVER_CHANGES(qcclMaxLoc, 71);

NEVER_CHANGES(sizeof(qcclResult_t), 4);
NEVER_CHANGES(sizeof(qcclDataType_t), 4);
NEVER_CHANGES(sizeof(qcclRedOp_t), 4);
NEVER_CHANGES(sizeof(qcclFeedback_t), 4);
NEVER_CHANGES(qcclFeedbackAll, 0);
NEVER_CHANGES(qcclFeedbackFirst, 1);
NEVER_CHANGES((qcclResult_t)-1 < 0, 1);
NEVER_CHANGES(sizeof(qcclUniqueId), 128);
NEVER_CHANGES(QCCL_CONFIG_MAGIC, 0x4C434351U);

#if UINTPTR_MAX == 0xFFFFFFFFFFFFFFFFU
NEVER_CHANGES(sizeof(qcclErrorInfo_t), 88);
NEVER_CHANGES(offsetof(qcclErrorInfo_t, size), 0);
NEVER_CHANGES(offsetof(qcclErrorInfo_t, code), 8);
NEVER_CHANGES(offsetof(qcclErrorInfo_t, rank), 12);
NEVER_CHANGES(offsetof(qcclErrorInfo_t, peer), 16);
NEVER_CHANGES(offsetof(qcclErrorInfo_t, collective), 20);
NEVER_CHANGES(offsetof(qcclErrorInfo_t, call), 24);
NEVER_CHANGES(offsetof(qcclErrorInfo_t, tag), 32);
NEVER_CHANGES(offsetof(qcclErrorInfo_t, expected), 40);
NEVER_CHANGES(offsetof(qcclErrorInfo_t, got), 48);

NEVER_CHANGES(sizeof(qcclIdle_t), 16);
NEVER_CHANGES(offsetof(qcclIdle_t, context), 8);
NEVER_CHANGES(sizeof(qcclLog_t), 16);
NEVER_CHANGES(offsetof(qcclLog_t, context), 8);
NEVER_CHANGES(sizeof(qcclOob_t), 16);
NEVER_CHANGES(offsetof(qcclOob_t, context), 8);

NEVER_CHANGES(sizeof(qcclConfig_t), 160);
NEVER_CHANGES(offsetof(qcclConfig_t, size), 0);
NEVER_CHANGES(offsetof(qcclConfig_t, magic), 8);
NEVER_CHANGES(offsetof(qcclConfig_t, version), 12);
NEVER_CHANGES(offsetof(qcclConfig_t, device), 16);
NEVER_CHANGES(offsetof(qcclConfig_t, codec), 24);
NEVER_CHANGES(offsetof(qcclConfig_t, algorithm), 32);
NEVER_CHANGES(offsetof(qcclConfig_t, timeout), 40);
NEVER_CHANGES(offsetof(qcclConfig_t, peer_timeout), 48);
NEVER_CHANGES(offsetof(qcclConfig_t, idle), 56);
NEVER_CHANGES(offsetof(qcclConfig_t, log), 72);
NEVER_CHANGES(offsetof(qcclConfig_t, name), 88);
NEVER_CHANGES(offsetof(qcclConfig_t, reproducible), 96);
NEVER_CHANGES(offsetof(qcclConfig_t, nonblocking), 100);
NEVER_CHANGES(offsetof(qcclConfig_t, fusion), 104);

NEVER_CHANGES(sizeof(qcclCollConfig_t), 112);
NEVER_CHANGES(offsetof(qcclCollConfig_t, size), 0);
NEVER_CHANGES(offsetof(qcclCollConfig_t, magic), 8);
NEVER_CHANGES(offsetof(qcclCollConfig_t, version), 12);
NEVER_CHANGES(offsetof(qcclCollConfig_t, codec), 16);
NEVER_CHANGES(offsetof(qcclCollConfig_t, algorithm), 24);
NEVER_CHANGES(offsetof(qcclCollConfig_t, timeout), 32);
NEVER_CHANGES(offsetof(qcclCollConfig_t, tag), 40);
NEVER_CHANGES(offsetof(qcclCollConfig_t, stride), 48);
NEVER_CHANGES(offsetof(qcclCollConfig_t, state), 56);
NEVER_CHANGES(offsetof(qcclCollConfig_t, layers), 64);
NEVER_CHANGES(offsetof(qcclCollConfig_t, nlayers), 72);
NEVER_CHANGES(offsetof(qcclCollConfig_t, layer_min_size), 80);

NEVER_CHANGES(sizeof(qcclLayer_t), 64);
NEVER_CHANGES(offsetof(qcclLayer_t, count), 0);
NEVER_CHANGES(offsetof(qcclLayer_t, codec), 8);
NEVER_CHANGES(offsetof(qcclLayer_t, state), 16);
NEVER_CHANGES(offsetof(qcclLayer_t, dimensions), 24);

NEVER_CHANGES(sizeof(qcclStateConfig_t), 64);
NEVER_CHANGES(offsetof(qcclStateConfig_t, size), 0);
NEVER_CHANGES(offsetof(qcclStateConfig_t, magic), 8);
NEVER_CHANGES(offsetof(qcclStateConfig_t, version), 12);
NEVER_CHANGES(offsetof(qcclStateConfig_t, seed), 16);
NEVER_CHANGES(offsetof(qcclStateConfig_t, feedback), 24);
NEVER_CHANGES(offsetof(qcclStateConfig_t, momentum), 28);

NEVER_CHANGES(sizeof(qcclCommStats_t), 128);
NEVER_CHANGES(offsetof(qcclCommStats_t, size), 0);
NEVER_CHANGES(offsetof(qcclCommStats_t, calls), 8);
NEVER_CHANGES(offsetof(qcclCommStats_t, raw_bytes), 16);
NEVER_CHANGES(offsetof(qcclCommStats_t, wire_bytes), 24);
NEVER_CHANGES(offsetof(qcclCommStats_t, encode_ns), 32);
NEVER_CHANGES(offsetof(qcclCommStats_t, copy_ns), 40);
NEVER_CHANGES(offsetof(qcclCommStats_t, wait_ns), 48);
NEVER_CHANGES(offsetof(qcclCommStats_t, wire_ns), 56);
NEVER_CHANGES(offsetof(qcclCommStats_t, lent_bytes), 64);
NEVER_CHANGES(offsetof(qcclCommStats_t, network_ns), 72);
NEVER_CHANGES(offsetof(qcclCommStats_t, device_bytes), 80);
#endif

static void the_function_fills_what_the_macros_fill(void **state)
{
    const qcclConfig_t config = QCCL_CONFIG_INIT;
    const qcclCollConfig_t coll_config = QCCL_COLL_CONFIG_INIT;
    const qcclStateConfig_t state_config = QCCL_STATE_CONFIG_INIT;
    qcclConfig_t filled;
    qcclCollConfig_t coll_filled;
    qcclStateConfig_t state_filled;
    (void)state;
    memset(&filled, 0xAA, sizeof filled);
    memset(&coll_filled, 0xAA, sizeof coll_filled);
    memset(&state_filled, 0xAA, sizeof state_filled);
    assert_int_equal(qcclConfigInit(&filled, sizeof filled), qcclSuccess);
    assert_int_equal(qcclConfigInit(&coll_filled, sizeof coll_filled), qcclSuccess);
    assert_memory_equal(&config, &filled, sizeof config);
    assert_memory_equal(&coll_config, &coll_filled, sizeof coll_config);
    assert_int_equal(qcclConfigInit(&state_filled, sizeof state_filled), qcclSuccess);
    assert_memory_equal(&state_config, &state_filled, sizeof state_config);
}

static void a_newer_config_can_be_filled(void **state)
{
    union {
        qcclConfig_t config;
        char bytes[sizeof(qcclConfig_t) + 64];
    } newer;
    size_t i;
    (void)state;
    memset(&newer, 0xAA, sizeof newer);
    assert_int_equal(qcclConfigInit(&newer, sizeof newer), qcclSuccess);
    assert_int_equal(newer.config.size, sizeof newer);
    for (i = sizeof(qcclConfig_t); i < sizeof newer; i++) assert_int_equal(newer.bytes[i], 0);
}

static void a_senseless_size_is_refused(void **state)
{
    qcclConfig_t config;
    (void)state;
    assert_int_equal(qcclConfigInit(&config, 8), qcclInvalidArgument);
    assert_non_null(strstr(qcclGetLastError(NULL), "size is 8"));
    assert_int_equal(qcclConfigInit(&config, SIZE_MAX), qcclInvalidArgument);
    assert_int_equal(qcclConfigInit(NULL, sizeof config), qcclInvalidArgument);
    assert_string_equal(qcclGetLastError(NULL), "config is NULL");
}

static void the_library_says_which_it_is(void **state)
{
    int version = 0;
    (void)state;
    assert_int_equal(qcclGetVersion(&version), qcclSuccess);
    assert_int_equal(version, QCCL_VERSION);
    assert_int_equal(qcclGetVersion(NULL), qcclInvalidArgument);
}

static void every_result_has_words(void **state)
{
    static const qcclResult_t all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 64, 65, 66, 67};
    size_t i, j;
    (void)state;
    for (i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_string_not_equal(qcclGetErrorString(all[i]), "unknown result");
        for (j = 0; j < i; j++)
            assert_string_not_equal(qcclGetErrorString(all[i]), qcclGetErrorString(all[j]));
    }
    assert_string_equal(qcclGetErrorString(9), "unknown result");
    assert_string_equal(qcclGetErrorString(-1), "unknown result");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_function_fills_what_the_macros_fill),
        cmocka_unit_test(a_newer_config_can_be_filled),
        cmocka_unit_test(a_senseless_size_is_refused),
        cmocka_unit_test(the_library_says_which_it_is),
        cmocka_unit_test(every_result_has_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
