/* Tests the creation of communicators with invalid settings, arguments and
 * ranks: each is refused with its name and the offending value. */
#include "tests/api/api_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { size = 2, three = 3 };

static void wrong_settings_are_refused_by_name(void **state)
{
    static const struct {
        const char *name, *value, *says;
    } cases[] = {
        {"QCCL_CODEC", "int9", "QCCL_CODEC: "},
        {"QCCL_ALGO", "rang", "QCCL_ALGO is \"rang\"; possible are"},
        {"QCCL_CHECKSUM", "yes", "QCCL_CHECKSUM=yes: expected 0 or 1"},
        {"QCCL_TIER", "mmx", "QCCL_TIER is \"mmx\"; possible are scalar"},
        {"QCCL_ARENA", "1", "QCCL_ARENA: 1 bytes are less than"},
        {"QCCL_ARENA", "18446744073709551615",
         "QCCL_ARENA: 18446744073709551615 bytes are more than"},
        {"QCCL_DEBUG_FILE", "/nowhere/at/all", "/nowhere/at/all"},
        {"QCCL_TRACE", "%z", "QCCL_TRACE \"%z\": %h is the host, %p the process, %r the rank"},
        {"QCCL_AUDIT", "int8,int7", "QCCL_AUDIT: codec is \"int7\""},
        {"QCCL_AUDIT_FILE", "a%", "QCCL_AUDIT_FILE \"a%\": %h is the host"},
        {"QCCL_RECORD_CALLS", "a%", "QCCL_RECORD_CALLS \"a%\": %h is the host"},
    };
    size_t i;
    (void)state;
    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        qcclComm_t comms[size] = {NULL, NULL};
        setenv(cases[i].name, cases[i].value, 1);
        if (qcclCommInitAll(comms, size, NULL) == qcclSuccess)
            fail_msg("%s=%s was accepted", cases[i].name, cases[i].value);
        assert_says(qcclGetLastError(NULL), cases[i].says);
        assert_null(comms[0]);
        unsetenv(cases[i].name);
    }
}

/* The sums of hierarchy depend on the placement of the ranks, so reproducible
 * communicators refuse it from the environment and from a call's config. */
static void hierarchies_are_refused_where_results_shall_be_reproducible(void **state)
{
    static const char sentence[] = "hierarchy sums in an order that depends on where the ranks are";
    qcclCollConfig_t call = QCCL_COLL_CONFIG_INIT;
    qcclComm_t comms[1] = {NULL};
    float value = 1;
    (void)state;
    setenv("QCCL_REPRODUCIBLE", "1", 1);
    setenv("QCCL_ALGO", "hierarchy", 1);
    assert_int_equal(qcclCommInitAll(comms, 1, NULL), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), sentence);
    unsetenv("QCCL_ALGO");
    assert_int_equal(qcclCommInitAll(comms, 1, NULL), qcclSuccess);
    unsetenv("QCCL_REPRODUCIBLE");
    call.algorithm = "hierarchy";
    assert_int_equal(
        qcclAllReduceConfig(&value, &value, 1, qcclFloat32, qcclSum, comms[0], NULL, &call),
        qcclInvalidArgument);
    assert_says(qcclGetLastError(comms[0]), sentence);
    assert_int_equal(qcclAllReduce(&value, &value, 1, qcclFloat32, qcclSum, comms[0], NULL),
                     qcclSuccess);
    assert_int_equal(qcclCommDestroy(comms[0]), qcclSuccess);
}

static void a_wrong_interface_is_refused_by_name(void **state)
{
    qcclUniqueId id;
    (void)state;
    setenv("QCCL_SOCKET_IFNAME", "nowhere0", 1);
    assert_int_equal(qcclGetUniqueId(&id), qcclInvalidArgument);
    unsetenv("QCCL_SOCKET_IFNAME");
    assert_says(qcclGetLastError(NULL),
                "QCCL_SOCKET_IFNAME: \"nowhere0\" is neither an address nor");
}

static void refused(qcclResult_t result, qcclResult_t expected, const char *part)
{
    if (result != expected) fail_msg("%d: %s", (int)result, qcclGetLastError(NULL));
    assert_says(qcclGetLastError(NULL), part);
}

static int no_gather(const void *mine, void *all, size_t bytes, void *context)
{
    (void)mine;
    (void)all;
    (void)bytes;
    (void)context;
    return 7;
}

static int lonely_gather(const void *mine, void *all, size_t bytes, void *context)
{
    (void)mine;
    (void)all;
    (void)bytes;
    (void)context;
    return -qcclRemoteError;
}

static void wrong_arguments_are_named(void **state)
{
    static const char *const devices[] = {"host", "cuda"};
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclOob_t oob = {no_gather, NULL}, lonely = {lonely_gather, NULL};
    qcclComm_t comm = NULL;
    qcclUniqueId id;
    (void)state;
    memset(&id, 0, sizeof id);
    refused(qcclGetUniqueId(NULL), qcclInvalidArgument, "id_out is NULL");
    refused(qcclCommInitRank(NULL, 1, &id, 0), qcclInvalidArgument, "comm_out is NULL");
    refused(qcclCommInitRank(&comm, 1, NULL, 0), qcclInvalidArgument, "id is NULL");
    refused(qcclCommInitRank(&comm, 0, &id, 0), qcclInvalidArgument, "nranks is 0");
    refused(qcclCommInitRank(&comm, 2, &id, -1), qcclInvalidArgument, "rank is -1");
    refused(qcclCommInitRank(&comm, 1, &id, 0), qcclInvalidArgument, "unique id");
    refused(qcclCommInitAll(NULL, 2, NULL), qcclInvalidArgument, "comms_out is NULL");
    refused(qcclCommInitAll(&comm, -3, NULL), qcclInvalidArgument, "nranks is -3");
    refused(qcclCommInitAll(&comm, INT32_MAX, NULL), qcclInvalidArgument,
            "nranks is 2147483647; one process");
    refused(qcclCommInitAll(&comm, 2, devices), qcclInvalidArgument,
            "devices[1] is \"cuda\"; possible are host, cuda:0, hip:0, emulated:0");
    refused(qcclCommInitOob(&comm, 2, 0, NULL, NULL), qcclInvalidArgument, "oob is NULL");
    refused(qcclCommInitOob(&comm, 0, 0, &oob, NULL), qcclInvalidArgument, "qcclCommInitMpi");
    refused(qcclCommInitOob(&comm, 2, 2, &oob, NULL), qcclInvalidArgument, "rank is 2");
    refused(qcclCommInitOob(&comm, 2, 0, &oob, NULL), qcclSystemError, "returned 7");
    refused(qcclCommInitOob(&comm, 2, 0, &lonely, NULL), qcclRemoteError,
            "another rank will not come");
    config.device = "hip:1x";
    refused(qcclCommInitOob(&comm, 2, 0, &oob, &config), qcclInvalidArgument,
            "device is \"hip:1x\"");
    config.device = NULL;
    config.codec = "int4:colour=red";
    refused(qcclCommInitOob(&comm, 2, 0, &oob, &config), qcclInvalidArgument, "config: ");
    config.codec = NULL;
    config.algorithm = "star";
    refused(qcclCommInitOob(&comm, 2, 0, &oob, &config), qcclInvalidArgument,
            "config: algorithm is \"star\"");
    config.algorithm = NULL;
    config.peer_timeout = -1;
    refused(qcclCommInitOob(&comm, 2, 0, &oob, &config), qcclInvalidArgument,
            "peer_timeout is -1;");
    config.peer_timeout = NAN;
    refused(qcclCommInitOob(&comm, 2, 0, &oob, &config), qcclInvalidArgument,
            "peer_timeout is not a number");
    config.peer_timeout = 0;
    config.timeout = NAN;
    refused(qcclCommInitOob(&comm, 2, 0, &oob, &config), qcclInvalidArgument,
            "timeout is not a number");
    config.timeout = 0;
    config.reserved[0] = 5;
    refused(qcclCommInitOob(&comm, 2, 0, &oob, &config), qcclInvalidArgument,
            "byte 112 of the qcclConfig_t");
    assert_null(comm);
}

static void reproducible_is_0_or_1(void **state)
{
    const qcclOob_t oob = {no_gather, NULL};
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclComm_t comm = NULL;
    (void)state;
    config.reproducible = 2;
    refused(qcclCommInitOob(&comm, 2, 0, &oob, &config), qcclInvalidArgument,
            "config: reproducible is 2; possible are 0 and 1");
    config.reproducible = 1;
    config.reserved[0] = 1;
    refused(qcclCommInitOob(&comm, 2, 0, &oob, &config), qcclInvalidArgument,
            "byte 112 of the qcclConfig_t");
    assert_null(comm);
}

/* Each thread joins with its own config, as its own rank or as another one. */
typedef struct {
    qcclUniqueId id;
    int size, ranks[three];
    qcclConfig_t configs[three];
    qcclComm_t comms[three];
} joining_t;

static qcclResult_t join_as(int thread, qcclComm_t comm, void *context)
{
    joining_t *joining = context;
    (void)comm;
    return qcclCommInitRankConfig(&joining->comms[thread], joining->size, &joining->id,
                                  joining->ranks[thread], &joining->configs[thread]);
}

static joining_t new_joining(int ranks)
{
    joining_t joining;
    int rank;
    memset(&joining, 0, sizeof joining);
    joining.size = ranks;
    for (rank = 0; rank < ranks; rank++) {
        joining.ranks[rank] = rank;
        joining.configs[rank] = (qcclConfig_t)QCCL_CONFIG_INIT;
    }
    return joining;
}

static outcome_t join_all(joining_t *joining)
{
    world_t nobody;
    memset(&nobody, 0, sizeof nobody);
    nobody.size = joining->size;
    assert_int_equal(qcclGetUniqueId(&joining->id), qcclSuccess);
    return on_every_rank(&nobody, join_as, joining);
}

static void ranks_that_cannot_be_are_refused_for_all(void **state)
{
    static const int ranks[][size] = {{0, 2}, {1, 1}};
    size_t i;
    (void)state;
    for (i = 0; i < 2; i++) {
        joining_t joining = new_joining(size);
        outcome_t outcome;
        int thread;
        memcpy(joining.ranks, ranks[i], sizeof ranks[i]);
        outcome = join_all(&joining);
        for (thread = 0; thread < size; thread++) {
            assert_int_not_equal(outcome.result[thread], qcclSuccess);
            assert_null(joining.comms[thread]);
            assert_says(outcome.sentence[thread], i == 0 ? "rank 2" : "rank 1");
        }
    }
}

static void communicators_that_disagree(void **state)
{
    joining_t joining = new_joining(three);
    outcome_t outcome;
    (void)state;
    joining.configs[0].codec = joining.configs[1].codec = "int8";
    joining.configs[2].codec = "int4";
    outcome = join_all(&joining);
    assert_all_say(&outcome, three, qcclMismatch,
                   "codec: rank 2 has \"int4\", rank 0 has \"int8\"");

    joining.configs[2].codec = "int8";
    joining.configs[1].algorithm = "ring";
    outcome = join_all(&joining);
    assert_all_say(&outcome, three, qcclMismatch,
                   "algorithm: rank 1 has \"ring\", rank 0 has \"auto\"");

    /* A communicator's name matters only if an item asks for it. */
    joining.configs[1].algorithm = NULL;
    joining.configs[2].name = "dp";
    setenv("QCCL_ALGO", "ring@comm=dp,bytes>=1K;tree", 1);
    outcome = join_all(&joining);
    unsetenv("QCCL_ALGO");
    assert_all_say(&outcome, three, qcclMismatch,
                   "algorithm: rank 2 has \"ring@bytes>=1024;tree\", rank 0 has \"tree\"");
    joining.configs[2].name = NULL;

    joining.configs[0].reproducible = joining.configs[2].reproducible = 1;
    outcome = join_all(&joining);
    assert_all_say(&outcome, three, qcclMismatch,
                   "reproducible: rank 1 has \"0\", rank 0 has \"1\"");
    joining.configs[1].reproducible = 1;

    /* 64 MiB are the default, however they come about. */
    joining.configs[0].fusion = 64 << 20;
    joining.configs[2].fusion = -1;
    outcome = join_all(&joining);
    assert_all_say(&outcome, three, qcclMismatch,
                   "fusion: rank 2 has \"0\", rank 0 has \"67108864\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_settings_are_refused_by_name),
        cmocka_unit_test(hierarchies_are_refused_where_results_shall_be_reproducible),
        cmocka_unit_test(a_wrong_interface_is_refused_by_name),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(reproducible_is_0_or_1),
        cmocka_unit_test(ranks_that_cannot_be_are_refused_for_all),
        cmocka_unit_test(communicators_that_disagree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
