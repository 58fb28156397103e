/* Tests saved states: what is read from them, what is refused, and that calls go on with the same
 * bits. */
#include "state_kit.h"

SHARED_WORLD(ranks)

/* The first call of a state draws the noise of a communicator's first call with the same seed. The
 * second one goes on as a loaded state does. */
static void noise_follows_the_state(void **state)
{
    shared_t with, without;
    world_t first = make_world(ranks), second = make_world(ranks);
    outcome_t outcome;
    unsigned char *before[ranks];
    float *results;
    size_t bytes = 0;
    int rank;
    (void)state;
    begin(&with, &first, "terngrad:seed=5");
    begin(&without, &second, "terngrad:seed=9");
    assert_works(&first); /* one more call of the communicator */
    outcome = on_every_rank(&first, reduce_once, &with);
    assert_all_succeed(&outcome, ranks);
    memset(without.states, 0, sizeof without.states);
    outcome = on_every_rank(&second, reduce_once, &without);
    assert_all_succeed(&outcome, ranks);
    assert_memory_equal(with.results, without.results, ranks * count * sizeof(float));

    for (rank = 0; rank < ranks; rank++) before[rank] = saved(with.states[rank], &bytes);
    outcome = on_every_rank(&first, reduce_once, &with);
    assert_all_succeed(&outcome, ranks);
    results = malloc(ranks * count * sizeof(float));
    memcpy(results, with.results, ranks * count * sizeof(float));
    outcome = on_every_rank(&second, create_states, &without);
    assert_all_succeed(&outcome, ranks);
    for (rank = 0; rank < ranks; rank++)
        assert_int_equal(qcclStateLoad(without.states[rank], before[rank], bytes), qcclSuccess);
    outcome = on_every_rank(&second, reduce_once, &without);
    assert_all_succeed(&outcome, ranks);
    assert_memory_equal(results, without.results, ranks * count * sizeof(float));
    for (rank = 0; rank < ranks; rank++) free(before[rank]);
    free(results);
    finish(&with);
    finish(&without);
    end_world(&first);
    end_world(&second);
}

static void damage_is_found(void **state)
{
    shared_t shared;
    outcome_t outcome;
    size_t bytes = 0, i;
    unsigned char *good, *bad;
    qcclState_t other = NULL;
    (void)state;
    begin(&shared, &world, "int4");
    outcome = on_every_rank(&world, reduce_once, &shared);
    assert_all_succeed(&outcome, ranks);
    good = saved(shared.states[0], &bytes);
    bad = malloc(bytes + 1);
    for (i = 0; i < bytes; i += i < header_bytes ? 1 : 97) {
        memcpy(bad, good, bytes);
        bad[i] ^= 0x10;
        assert_int_equal(qcclStateLoad(shared.states[0], bad, bytes), qcclDamagedData);
        assert_is_saved(shared.states[0], good);
    }
    memcpy(bad, good, bytes);
    bad[bytes] = 0;
    for (i = 0; i < bytes; i += 61)
        assert_int_equal(qcclStateLoad(shared.states[0], bad, i), qcclDamagedData);
    assert_int_equal(qcclStateLoad(shared.states[0], bad, bytes + 1), qcclDamagedData);
    assert_int_equal(qcclStateLoad(shared.states[1], good, bytes), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "rank 0");
    assert_int_equal(qcclStateCreate(&other, world.comms[0], count + 1, qcclFloat32, NULL),
                     qcclSuccess);
    assert_int_equal(qcclStateLoad(other, good, bytes), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "1203 elements");
    assert_int_equal(qcclStateDestroy(other), qcclSuccess);
    assert_int_equal(qcclStateCreate(&other, world.comms[0], count, qcclBfloat16, NULL),
                     qcclSuccess);
    assert_int_equal(qcclStateLoad(other, good, bytes), qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "bfloat16");
    assert_int_equal(qcclStateDestroy(other), qcclSuccess);
    assert_int_equal(qcclStateReset(shared.states[0]), qcclSuccess);
    assert_int_equal(qcclStateLoad(shared.states[0], good, bytes), qcclSuccess);
    assert_is_saved(shared.states[0], good);
    free(good);
    free(bad);
    finish(&shared);
}

/* The saved state of a rank of four goes on in a communicator of three. */
static void a_state_outlives_its_communicator(void **state)
{
    world_t fewer = make_world(3);
    shared_t shared;
    outcome_t outcome;
    qcclState_t next = NULL;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    size_t bytes = 0;
    unsigned char *kept;
    float values[count] = {0};
    (void)state;
    begin(&shared, &world, "int2");
    outcome = on_every_rank(&world, reduce_once, &shared);
    assert_all_succeed(&outcome, ranks);
    config.state = shared.states[0];
    assert_int_equal(qcclAllReduceConfig(values, values, count, qcclFloat32, qcclSum,
                                         fewer.comms[0], NULL, &config),
                     qcclInvalidArgument);
    assert_says(qcclGetLastError(NULL), "of 4 ranks");
    kept = saved(shared.states[3], &bytes);
    assert_int_equal(qcclStateCreate(&next, fewer.comms[2], count, qcclFloat32, NULL), qcclSuccess);
    assert_int_equal(qcclStateLoad(next, kept, bytes), qcclSuccess);
    free(kept);
    assert_int_equal(qcclStateDestroy(next), qcclSuccess);
    finish(&shared);
    end_world(&fewer);
}

/* WIRE.md defines these bytes for ever; its CRC32C was computed apart. */
static void saved_bytes_never_change(void **state)
{
    static const unsigned char golden[] = {
        0x51, 0x43, 0x53, 0x54, 0x01, 0x09, 0x01, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x08, 0x07,
        0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x0C, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x8F, 0x88, 0x6B, 0xB4, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    };
    qcclStateConfig_t config = QCCL_STATE_CONFIG_INIT;
    qcclState_t made = NULL;
    unsigned char *bytes;
    size_t size = 0;
    (void)state;
    config.seed = 0x0102030405060708;
    config.feedback = qcclFeedbackFirst;
    assert_int_equal(qcclStateCreate(&made, world.comms[2], 3, qcclBfloat16, &config), qcclSuccess);
    bytes = saved(made, &size);
    assert_int_equal(size, sizeof golden);
    assert_memory_equal(bytes, golden, sizeof golden);
    assert_int_equal(qcclStateLoad(made, golden, sizeof golden), qcclSuccess);
    assert_int_equal(qcclStateDestroy(made), qcclSuccess);
    free(bytes);
}

static void what_no_library_writes_is_damaged(void **state)
{
    static const struct {
        size_t at;
        unsigned char byte;
        size_t times;
    } changes[] = {{5, 255, 1}, {16, 0, 1}, {16, 1, 1}, {20, 100, 1}, {32, 255, 8}};
    shared_t shared;
    unsigned char *good, *bad;
    size_t bytes = 0, i;
    (void)state;
    begin(&shared, &world, "int4");
    good = saved(shared.states[2], &bytes);
    bad = malloc(bytes);
    memcpy(bad, good, bytes);
    seal(bad, bytes);
    assert_memory_equal(bad, good, bytes);
    for (i = 0; i < sizeof changes / sizeof *changes; i++) {
        memcpy(bad, good, bytes);
        memset(bad + changes[i].at, changes[i].byte, changes[i].times);
        seal(bad, bytes);
        assert_int_equal(qcclStateLoad(shared.states[2], bad, bytes), qcclDamagedData);
        assert_is_saved(shared.states[2], good);
    }
    free(good);
    free(bad);
    finish(&shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_no_library_writes_is_damaged),
        cmocka_unit_test(noise_follows_the_state),
        cmocka_unit_test(saved_bytes_never_change),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(a_state_outlives_its_communicator),
    };
    return cmocka_run_group_tests(tests, make, end);
}
