/* Tests registered memory: peers read large buffers in place, results do not
 * depend on which ranks have registered, and peers unmap memory that is
 * freed. */
#include "api_kit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In-place sums are read in place from overwriting_count values (32 MiB) on. */
enum { block = 100001, bytes = most_ranks * block * 4, overwriting_count = 8 << 20 };

/* One rank's buffers and its result. */
typedef struct {
    float *send, *recv;
    void *handles[2];
    float *got;
    size_t got_count;
} holding_t;

typedef struct {
    int size;
    unsigned registers; /* a bit for each rank */
    int collective;     /* as in qcclErrorInfo_t */
    const char *algorithm;
    int in_place;
    size_t count;
    holding_t holdings[most_ranks];
} plan_t;

static float input(int rank, size_t i)
{
    return (float)((rank * 7919 + (int)(i % 9973)) % 127 - 60) / 8;
}

static qcclResult_t call(const plan_t *plan, int rank, qcclComm_t comm, holding_t *mine)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    const size_t n = plan->count, own = (size_t)rank * n;
    float *send = plan->in_place ? mine->recv : mine->send, *recv = mine->recv;
    config.algorithm = plan->algorithm;
    mine->got_count = plan->collective == 2 ? n * (size_t)plan->size : n;
    mine->got = recv;
    switch (plan->collective) {
    case 0: return qcclAllReduceConfig(send, recv, n, qcclFloat32, qcclAvg, comm, NULL, &config);
    case 1:
        if (plan->in_place) mine->got = recv = send + own;
        return qcclReduceScatterConfig(send, recv, n, qcclFloat32, qcclSum, comm, NULL, &config);
    case 2:
        if (plan->in_place) send = recv + own;
        return qcclAllGatherConfig(send, recv, n, qcclFloat32, comm, NULL, &config);
    default:
        return qcclBroadcastConfig(send, recv, n, qcclFloat32, plan->size - 1, comm, NULL, &config);
    }
}

/* Makes the call repeatedly. As soon as a call has returned, the rank
 * overwrites the buffers that it used. */
static qcclResult_t call_often(int rank, qcclComm_t comm, void *context)
{
    plan_t *plan = context;
    holding_t *mine = &plan->holdings[rank];
    const size_t sent = plan->collective == 1 ? plan->count * (size_t)plan->size : plan->count;
    float *result = malloc(bytes);
    int again;
    for (again = 0; result && again < 4; again++) {
        float *send = plan->in_place ? mine->recv : mine->send;
        qcclResult_t done;
        size_t i;
        if (plan->in_place && plan->collective == 2) send += (size_t)rank * plan->count;
        for (i = 0; i < sent; i++) send[i] = input(rank + again, i);
        if ((rank + again) % 3 == 0) sleep_ms(1);
        done = call(plan, rank, comm, mine);
        if (done != qcclSuccess) {
            free(result);
            return done;
        }
        memcpy(result, mine->got, mine->got_count * sizeof(float));
        memset(mine->send, 0xDB, bytes);
        memset(mine->recv, 0xDB, bytes);
    }
    mine->got = result;
    return result ? qcclSuccess : qcclInternalError;
}

static uint64_t lent_by_all(const world_t *world)
{
    qcclCommStats_t stats;
    uint64_t lent = 0;
    int rank;
    for (rank = 0; rank < world->size; rank++) {
        stats.size = sizeof stats;
        assert_int_equal(qcclCommGetStats(world->comms[rank], &stats), qcclSuccess);
        assert_true(stats.lent_bytes <= stats.wire_bytes);
        lent += stats.lent_bytes;
    }
    return lent;
}

/* Small in-place sums are copied, because reading in place does not pay. */
static void check_lent(const plan_t *plan, uint64_t lent)
{
    if (plan->registers == 0 || (plan->in_place && plan->collective == 0))
        assert_int_equal(lent, 0);
    else if (plan->registers + 1 == 1U << plan->size)
        assert_true(lent > 0);
}

static void run_plan(const world_t *world, plan_t *plan)
{
    const uint64_t before = lent_by_all(world);
    outcome_t outcome;
    int rank, i;
    for (rank = 0; rank < world->size; rank++)
        for (i = 0; i < 2; i++) {
            holding_t *holding = &plan->holdings[rank];
            holding->handles[i] = NULL;
            if ((plan->registers >> rank & 1) == 0) continue;
            assert_int_equal(qcclCommRegister(world->comms[rank], i ? holding->recv : holding->send,
                                              bytes, &holding->handles[i]),
                             qcclSuccess);
        }
    outcome = on_every_rank(world, call_often, plan);
    assert_all_succeed(&outcome, world->size);
    check_lent(plan, lent_by_all(world) - before);
    for (rank = 0; rank < world->size; rank++)
        for (i = 0; i < 2; i++)
            assert_int_equal(
                qcclCommDeregister(world->comms[rank], plan->holdings[rank].handles[i]),
                qcclSuccess);
}

static void compare_with_unregistered(const world_t *world, plan_t *plan)
{
    plan_t plain = *plan;
    int rank;
    plain.registers = 0;
    run_plan(world, &plain);
    run_plan(world, plan);
    for (rank = 0; rank < world->size; rank++) {
        float *const expected = plain.holdings[rank].got, *const got = plan->holdings[rank].got;
        if (memcmp(expected, got, plan->holdings[rank].got_count * sizeof(float)) != 0)
            fail_msg("collective %d, %s%s, %d ranks, registered 0x%x: rank %d has other bytes",
                     plan->collective, plan->algorithm, plan->in_place ? " in place" : "",
                     world->size, plan->registers, rank);
        free(expected);
        free(got);
    }
}

static void check_all(world_t world, unsigned registers)
{
    static const char *const algorithms[] = {"direct", "ring", "oneshot"};
    plan_t plan;
    int collective, rank;
    size_t algorithm;
    memset(&plan, 0, sizeof plan);
    plan.size = world.size;
    plan.registers = registers;
    for (rank = 0; rank < world.size; rank++) {
        plan.holdings[rank].send = allocate(bytes);
        plan.holdings[rank].recv = allocate(bytes);
    }
    for (collective = 0; collective < 4; collective++)
        for (algorithm = 0; algorithm < 3; algorithm++)
            for (plan.in_place = 0; plan.in_place < 2; plan.in_place++) {
                plan.collective = collective;
                plan.algorithm = algorithms[algorithm];
                plan.count = block;
                compare_with_unregistered(&world, &plan);
            }
    end_world(&world);
    for (rank = 0; rank < plan.size; rank++) {
        assert_int_equal(qcclMemFree(plan.holdings[rank].send), qcclSuccess);
        assert_int_equal(qcclMemFree(plan.holdings[rank].recv), qcclSuccess);
    }
}

static void whoever_registers_the_bytes_are_the_same(void **state)
{
    (void)state;
    check_all(make_world(3), 7);
    check_all(join_world(3, NULL), 7);
    check_all(join_world(2, NULL), 2);
    check_all(join_world(4, NULL), 5);
}

/* Returns how many memory files of any rank are mapped in this process. */
static int mapped_files(void)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found += strstr(line, "memfd:qccl") != NULL;
    if (maps) fclose(maps);
    return found;
}

typedef struct {
    int calls;
    size_t count;
    const char *algorithm;
} some_t;

static qcclResult_t call_some(int rank, qcclComm_t comm, void *context)
{
    const some_t *some = context;
    float *const values = calloc(some->count, sizeof *values);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclResult_t result = values ? qcclSuccess : qcclInternalError;
    int i;
    (void)rank;
    config.algorithm = some->algorithm;
    for (i = 0; i < some->calls && result == qcclSuccess; i++)
        result = qcclAllReduceConfig(values, values, some->count, qcclFloat32, qcclSum, comm, NULL,
                                     &config);
    free(values);
    return result;
}

/* Peers unmap freed memory in any later call; if the calls are small, only
 * after a while. */
static void peers_let_go_of_what_is_freed(void **state)
{
    static some_t large = {1, 1 << 18, "direct"};
    static some_t others[] = {{1, 10000, "ring"}, {64, 1, "oneshot"}};
    world_t world = make_world(2);
    const int before = mapped_files();
    size_t i;
    (void)state;
    for (i = 0; i < sizeof others / sizeof *others; i++) {
        void *const memory = allocate(1 << 20), *handle;
        outcome_t outcome;
        assert_int_equal(qcclCommRegister(world.comms[0], memory, 1 << 20, &handle), qcclSuccess);
        outcome = on_every_rank(&world, call_some, &large);
        assert_all_succeed(&outcome, 2);
        assert_int_equal(mapped_files(), before + 2);
        assert_int_equal(qcclCommDeregister(world.comms[0], handle), qcclSuccess);
        assert_int_equal(qcclMemFree(memory), qcclSuccess);
        outcome = on_every_rank(&world, call_some, &others[i]);
        assert_all_succeed(&outcome, 2);
        assert_int_equal(mapped_files(), before);
    }
    end_world(&world);
}

typedef struct {
    float *memory[2];
    size_t count;
} sums_t;

static qcclResult_t sum_twice(int rank, qcclComm_t comm, void *context)
{
    const sums_t *sums = context;
    float *const own = sums->memory[rank];
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclResult_t result = qcclSuccess;
    int again;
    config.algorithm = "direct";
    for (again = 0; again < 2 && result == qcclSuccess; again++)
        result =
            qcclAllReduceConfig(own, own, sums->count, qcclFloat32, qcclSum, comm, NULL, &config);
    return result;
}

/* The sum overwrites the buffers that peers read, so peers read in place only
 * if a copy would cost more. */
static void large_sums_in_place_are_lent_too(void **state)
{
    world_t world = make_world(2);
    sums_t sums;
    outcome_t outcome;
    void *handle;
    int rank;
    (void)state;
    for (rank = 0; rank < 2; rank++) {
        sums.memory[rank] = allocate(overwriting_count * sizeof(float));
        assert_int_equal(qcclCommRegister(world.comms[rank], sums.memory[rank],
                                          overwriting_count * sizeof(float), &handle),
                         qcclSuccess);
    }
    for (sums.count = overwriting_count - 1; sums.count <= overwriting_count; sums.count++) {
        outcome = on_every_rank(&world, sum_twice, &sums);
        assert_all_succeed(&outcome, 2);
        if (sums.count < overwriting_count)
            assert_int_equal(lent_by_all(&world), 0);
        else
            assert_true(lent_by_all(&world) > 0);
    }
    end_world(&world);
    for (rank = 0; rank < 2; rank++) assert_int_equal(qcclMemFree(sums.memory[rank]), qcclSuccess);
}

enum { letter_count = 1 << 18, letter_rounds = 8 };

typedef struct {
    float *send[2], *recv[2];
} letters_t;

/* Each rank sends to the other one. */
static qcclResult_t exchange_letters(int rank, qcclComm_t comm, void *context)
{
    const letters_t *letters = context;
    qcclResult_t result = qcclSuccess;
    int again, i, is_right = 1;
    for (again = 0; again < letter_rounds && result == qcclSuccess; again++) {
        for (i = 0; i < letter_count; i++) letters->send[rank][i] = input(rank + again, (size_t)i);
        result = qcclSendRecv(letters->send[rank], letter_count, 1 - rank, letters->recv[rank],
                              letter_count, 1 - rank, qcclFloat32, comm, NULL);
        for (i = 0; i < letter_count; i++)
            is_right &= letters->recv[rank][i] == input(1 - rank + again, (size_t)i);
        memset(letters->send[rank], 0xDB, letter_count * sizeof(float));
    }
    return result == qcclSuccess && !is_right ? qcclInternalError : result;
}

/* The number of letters that were read in place. The first ones may go before
 * the receiver has mapped the memory. */
static uint64_t lent_letters(const world_t *world, letters_t *letters)
{
    const uint64_t before = lent_by_all(world);
    const outcome_t outcome = on_every_rank(world, exchange_letters, letters);
    assert_all_succeed(&outcome, 2);
    return (lent_by_all(world) - before) / (letter_count * sizeof(float));
}

/* What is registered before the first message, and what is registered later. */
static void messages_are_read_in_place(void **state)
{
    enum { letter_bytes = letter_count * (int)sizeof(float) };
    int kind, rank;
    (void)state;
    for (kind = 0; kind < 2; kind++) {
        world_t world = kind ? join_world(2, NULL) : make_world(2);
        letters_t letters;
        void *handles[2];
        for (rank = 0; rank < 2; rank++) {
            letters.send[rank] = allocate(letter_bytes);
            letters.recv[rank] = allocate(letter_bytes);
        }
        assert_int_equal(
            qcclCommRegister(world.comms[0], letters.send[0], letter_bytes, &handles[0]),
            qcclSuccess);
        assert_in_range(lent_letters(&world, &letters), 1, letter_rounds);
        assert_int_equal(
            qcclCommRegister(world.comms[1], letters.send[1], letter_bytes, &handles[1]),
            qcclSuccess);
        assert_in_range(lent_letters(&world, &letters), letter_rounds + 1, 2 * letter_rounds);
        assert_int_equal(qcclCommDeregister(world.comms[0], handles[0]), qcclSuccess);
        assert_in_range(lent_letters(&world, &letters), 1, letter_rounds);
        assert_int_equal(qcclMemFree(letters.send[0]), qcclSuccess);
        assert_int_equal(qcclMemFree(letters.send[1]), qcclInvalidUsage);
        end_world(&world);
        assert_int_equal(qcclMemFree(letters.send[1]), qcclSuccess);
        for (rank = 0; rank < 2; rank++)
            assert_int_equal(qcclMemFree(letters.recv[rank]), qcclSuccess);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_registers_the_bytes_are_the_same),
        cmocka_unit_test(large_sums_in_place_are_lent_too),
        cmocka_unit_test(messages_are_read_in_place),
        cmocka_unit_test(peers_let_go_of_what_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
