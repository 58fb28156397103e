/* Tests the v-forms. Their slow twin is a call of the collective itself for each part, with blocks
 * as long as the part: the part's values have the same bytes there. Segments are short, so that
 * parts have several of them and end where a segment ends. With ON_GPUS the ranks have emulated
 * GPUs, whose memory the host can read and write, and fewer cases run. */
#include "tested_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { segment = 1024, most_part = 6 * segment, gap = 3, filler = 0x5A };

typedef enum { gathers_all, scatters_sum, gathers, scatters, exchanges, forms } form_t;

static const char *const form_names[forms] = {"all_gather_v", "reduce_scatter_v", "gather_v",
                                              "scatter_v", "all_to_all_v"};

typedef struct {
    const char *codec, *algorithm;
    int form, shape, has_gaps, in_place;
} v_case_t;

/* The count of the part that rank `from` has for rank `to`. */
static size_t count_of(int shape, int from, int to)
{
    const size_t number = (size_t)(from * 5 + to * 3);
    switch (shape) {
    case 0: return 17 + number % 7;
    case 1: return number % 3 == 0 ? 0 : 100 * number;
    case 2: return from == 1 && to == 0 ? most_part : 0; /* one part has everything */
    case 3: return segment * (number % 4);               /* whole segments */
    case 4: return 0;
    case 5: return segment * (size_t)((from + to) % 3) + (size_t)(from + to) * 10;
    default: return segment * (number % 3) + (number % 5) * 77;
    }
}
enum { shapes = 7 };

/* The part of rank `from` for rank `to`, in a form that has one part for each rank. */
static size_t part_of(const v_case_t *c, int from, int to)
{
    switch (c->form) {
    case gathers_all:
    case gathers: return count_of(c->shape, from, 0);
    case scatters_sum:
    case scatters: return count_of(c->shape, to == 0 ? 1 : to, to == 0 ? 0 : 1);
    default: return count_of(c->shape, from, to);
    }
}

static float value_of(int from, int to, size_t i)
{
    return drawn_value((uint32_t)from * 7919u + (uint32_t)to * 104729u + (uint32_t)i * 2654435761u);
}

/* Counts and starts of the parts of one buffer. With gaps the parts lie in reverse order. */
typedef struct {
    size_t counts[most_ranks], displs[most_ranks], end;
} parts_t;

static void lay_out(parts_t *parts, int size, int has_gaps)
{
    int i;
    parts->end = 0;
    for (i = 0; i < size; i++) {
        const int rank = has_gaps ? size - 1 - i : i;
        if (has_gaps) parts->end += gap;
        parts->displs[rank] = parts->end;
        parts->end += parts->counts[rank];
    }
    if (has_gaps) parts->end += gap;
}

typedef struct {
    int size;
    v_case_t now;
    qcclCodec_t codec;
    char what[most_ranks][sentence_bytes];
} run_t;

static qcclCollConfig_t config_of(const run_t *run)
{
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.codec = run->codec;
    config.algorithm = run->now.algorithm;
    return config;
}

/* Makes the twin's call for one part, and copies what `rank` gets of it to `result`. */
static qcclResult_t twin_part(const run_t *run, qcclComm_t comm, int rank, int from, int to,
                              float *result)
{
    const size_t count = part_of(&run->now, from, to), size = (size_t)run->size;
    const qcclCollConfig_t config = config_of(run);
    float *const send = take_memory(rank, size * count);
    float *const recv = take_memory(rank, size * count);
    qcclResult_t done = qcclInternalError;
    const int form = run->now.form;
    const int block = form == gathers_all || form == gathers ? 0 : to;
    size_t i, at = 0;
    memset(send, 0, size * count * sizeof *send);
    for (i = 0; i < count; i++) send[(size_t)block * count + i] = value_of(rank, to, i);
    switch (form) {
    case gathers_all:
        done = qcclAllGatherConfig(send, recv, count, qcclFloat32, comm, QCCL_STREAM_SYNC, &config);
        at = (size_t)from;
        break;
    case scatters_sum:
        done = qcclReduceScatterConfig(send, recv, count, qcclFloat32, qcclSum, comm,
                                       QCCL_STREAM_SYNC, &config);
        break;
    case gathers:
        done =
            qcclGatherConfig(send, recv, count, qcclFloat32, to, comm, QCCL_STREAM_SYNC, &config);
        at = (size_t)from;
        break;
    case scatters:
        done = qcclScatterConfig(send, recv, count, qcclFloat32, from, comm, QCCL_STREAM_SYNC,
                                 &config);
        break;
    default:
        done = qcclAllToAllConfig(send, recv, count, qcclFloat32, comm, QCCL_STREAM_SYNC, &config);
        at = (size_t)from;
        break;
    }
    memcpy(result, recv + at * count, count * sizeof *recv);
    give_memory(send);
    give_memory(recv);
    return done;
}

static qcclResult_t call_form(const run_t *run, qcclComm_t comm, qcclStream_t stream, int root,
                              const float *send, const parts_t *sent, float *recv,
                              const parts_t *received, int rank)
{
    const qcclCollConfig_t config = config_of(run);
    const int has_gaps = run->now.has_gaps;
    const size_t *const from = has_gaps ? sent->displs : NULL;
    const size_t *const to = has_gaps ? received->displs : NULL;
    switch (run->now.form) {
    case gathers_all:
        return qcclAllGatherVConfig(send, recv, received->counts, to, qcclFloat32, comm, stream,
                                    &config);
    case scatters_sum:
        return qcclReduceScatterVConfig(send, recv, sent->counts, from, qcclFloat32, qcclSum, comm,
                                        stream, &config);
    case gathers:
        return qcclGatherVConfig(send, sent->counts[root], recv,
                                 rank == root ? received->counts : NULL, to, qcclFloat32, root,
                                 comm, stream, &config);
    case scatters:
        return qcclScatterVConfig(send, rank == root ? sent->counts : NULL, from, recv,
                                  received->counts[root], qcclFloat32, root, comm, stream, &config);
    default:
        return qcclAllToAllVConfig(send, sent->counts, from, recv, received->counts, to,
                                   qcclFloat32, comm, stream, &config);
    }
}

/* Whether the rank has the part of the buffer that it sends, or receives. */
static int sends(const v_case_t *c, int root, int rank, int to)
{
    if (c->form == gathers_all) return to == 0;
    if (c->form == gathers) return to == root;
    return c->form != scatters || rank == root;
}
static int receives(const v_case_t *c, int root, int rank, int from)
{
    if (c->form == scatters_sum) return from == 0;
    if (c->form == scatters) return from == root;
    return c->form != gathers || rank == root;
}

typedef struct {
    parts_t sent, received;
    float *memory, *send, *recv;
} buffers_t;

/* In place, the buffer of all parts holds the one part of the other buffer, too. */
static void allocate_buffers(const v_case_t *c, int size, int root, int rank, buffers_t *b)
{
    const int has_one_sent = c->form == gathers_all || c->form == gathers;
    const int has_one_received = c->form == scatters_sum || c->form == scatters;
    size_t i;
    int other;
    memset(b, 0, sizeof *b);
    for (other = 0; other < size; other++) {
        if (sends(c, root, rank, other)) b->sent.counts[other] = part_of(c, rank, other);
        if (receives(c, root, rank, other))
            b->received.counts[other] = part_of(c, other, c->form == gathers_all ? 0 : rank);
    }
    if (c->form == scatters_sum) {
        memset(b->received.counts, 0, sizeof b->received.counts);
        b->received.counts[0] = part_of(c, 0, rank);
    }
    lay_out(&b->sent, size, c->has_gaps && !has_one_sent);
    lay_out(&b->received, size, c->has_gaps && !has_one_received);
    b->memory = take_memory(rank, b->sent.end + b->received.end);
    memset(b->memory, filler, (b->sent.end + b->received.end) * sizeof *b->memory);
    b->send = b->memory;
    b->recv = b->memory + b->sent.end;
    if (c->in_place) {
        const int own = c->form == gathers || c->form == scatters ? root : rank;
        const int is_member = own == rank || c->form == gathers_all || c->form == scatters_sum;
        if (c->form == exchanges)
            b->recv = b->send;
        else if (has_one_sent && is_member)
            b->send = b->recv + b->received.displs[own];
        else if (has_one_received && is_member)
            b->recv = b->send + b->sent.displs[own];
    }
    for (other = 0; other < size; other++)
        for (i = 0; i < b->sent.counts[other]; i++)
            b->send[b->sent.displs[other] + i] = value_of(rank, other, i);
}

static int is_filler(const float *value)
{
    const unsigned char *byte = (const unsigned char *)value;
    return byte[0] == filler && byte[1] == filler && byte[2] == filler && byte[3] == filler;
}

/* Returns how many elements of `recv` are neither the twin's nor, between parts, untouched. */
static size_t count_wrong(const buffers_t *b, int size, float *const *expected, int in_place)
{
    size_t wrong = 0, i;
    int other;
    unsigned char *is_part = calloc(b->received.end + 1, 1);
    for (other = 0; other < size; other++) {
        const size_t start = b->received.displs[other], n = b->received.counts[other];
        if (n == 0) continue;
        memset(is_part + start, 1, n);
        for (i = 0; i < n; i++)
            wrong += memcmp(b->recv + start + i, expected[other] + i, sizeof(float)) != 0;
    }
    for (i = 0; i < b->received.end && !in_place; i++)
        wrong += !is_part[i] && !is_filler(b->recv + i);
    free(is_part);
    return wrong;
}

static qcclResult_t run_case(int rank, qcclComm_t comm, void *context)
{
    run_t *run = context;
    const v_case_t *const c = &run->now;
    const int size = run->size, root = c->form == gathers || c->form == scatters ? size - 1 : 0;
    float *expected[most_ranks] = {0}, *unused = malloc(sizeof(float) * most_part);
    buffers_t b;
    qcclResult_t done = qcclSuccess;
    size_t wrong = 0;
    int from, to, again;
    for (from = 0; from < size; from++) expected[from] = malloc(sizeof(float) * most_part);
    for (from = 0; from < size && done == qcclSuccess; from++)
        for (to = 0; to < size && done == qcclSuccess; to++) {
            float *result = unused;
            if (c->form == gathers_all && to != 0) continue;
            if (c->form == scatters_sum && from != 0) continue;
            if (c->form == gathers && to != root) continue;
            if (c->form == scatters && from != root) continue;
            if (c->form == gathers_all || to == rank) result = expected[from];
            done = twin_part(run, comm, rank, from, to, result);
        }
    /* The second call repeats the first one, with other buffers. */
    for (again = 0; again < 2 && done == qcclSuccess; again++) {
        allocate_buffers(c, size, root, rank, &b);
        done = call_form(run, comm, QCCL_STREAM_SYNC, root, b.send, &b.sent, b.recv, &b.received,
                         rank);
        if (done == qcclSuccess) wrong += count_wrong(&b, size, expected, c->in_place);
        give_memory(b.memory);
    }
    snprintf(run->what[rank], sentence_bytes, "%zu wrong values", wrong);
    for (from = 0; from < size; from++) free(expected[from]);
    free(unused);
    return done;
}

static void check_case(const world_t *world, run_t *run)
{
    const v_case_t *const c = &run->now;
    const outcome_t outcome = on_every_rank(world, run_case, run);
    int rank;
    for (rank = 0; rank < world->size; rank++) {
        if (outcome.result[rank] == qcclSuccess && strcmp(run->what[rank], "0 wrong values") == 0)
            continue;
        print_error("%s, %d ranks, %s, codec %s, shape %d, gaps %d, in place %d: rank %d: %s %s\n",
                    form_names[c->form], world->size, c->algorithm, c->codec ? c->codec : "none",
                    c->shape, c->has_gaps, c->in_place, rank, run->what[rank],
                    outcome.sentence[rank]);
        fail();
    }
}

/* Whether two ranks send each other equally much, as they have to in place. */
static int is_symmetric(int shape) { return shape == 4 || shape == 5; }

static void check_all_shapes(const world_t *world, int form, const char *algorithm,
                             const char *codec)
{
    run_t run;
    int shape, has_gaps, in_place;
    memset(&run, 0, sizeof run);
    run.size = world->size;
    if (codec) assert_int_equal(qcclCodecCreate(&run.codec, codec), qcclSuccess);
    for (shape = 0; shape < shapes; shape++)
        for (has_gaps = 0; has_gaps < 2; has_gaps++)
            for (in_place = 0; in_place < 2; in_place++) {
                const v_case_t now = {codec, algorithm, form, shape, has_gaps, in_place};
                if (form == exchanges && in_place && !is_symmetric(shape)) continue;
                if ((codec || on_gpus) && has_gaps != in_place) continue;
                run.now = now;
                check_case(world, &run);
            }
    if (codec) assert_int_equal(qcclCodecDestroy(run.codec), qcclSuccess);
}

static void parts_equal_those_of_the_collective(void **state)
{
    static const char *const common[] = {"direct", "ring", "oneshot", "halving", "hierarchy", NULL};
    static const char *const pairwise[] = {"direct", "oneshot", "pairwise", NULL};
    static const char *const codecs[] = {NULL, "int8:min=0", "bf16:min=0",
                                         "minmax:bits=8,bucket=all,min=0"};
    int size, form;
    size_t codec, i;
    (void)state;
    for (size = 1; size <= most_tested; size++) {
        world_t world = make_tested_world(size);
        for (form = 0; form < forms; form++) {
            const int has_common = form == gathers_all || form == scatters_sum;
            const char *const *const names = has_common ? common : pairwise;
            for (i = 0; names[i]; i++) {
                if (strcmp(names[i], "pairwise") == 0 && form != exchanges) continue;
                for (codec = 0; codec < sizeof codecs / sizeof *codecs; codec++)
                    check_all_shapes(&world, form, names[i], codecs[codec]);
            }
        }
        end_world(&world);
    }
}

#ifndef ON_GPUS
/* ---- Counts that differ */

typedef struct {
    int form;
    size_t wrong; /* what rank 1 passes instead of 4 */
} differing_t;

static float values[4][64], results[4][64];

/* Rank 1 gives another count for its part for rank 0, or for its own part. */
static qcclResult_t call_with_other_count(int rank, qcclComm_t comm, void *context)
{
    const differing_t *const given = context;
    size_t counts[3] = {4, 4, 4}, usual[3] = {4, 4, 4};
    const size_t own = rank == 1 ? given->wrong : 4;
    const size_t displs[3] = {0, 16, 32};
    float *const send = values[rank], *const recv = results[rank];
    qcclResult_t done;
    switch (given->form) {
    case gathers_all:
        counts[2] = own;
        done = qcclAllGatherV(send, recv, counts, displs, qcclFloat32, comm, NULL);
        break;
    case scatters_sum:
        counts[0] = own;
        counts[2] = 8 - own; /* the total is the same */
        done = qcclReduceScatterV(send, recv, counts, displs, qcclFloat32, qcclSum, comm, NULL);
        break;
    case gathers:
        done = qcclGatherV(send, own, recv, usual, displs, qcclFloat32, 0, comm, NULL);
        break;
    case scatters:
        done = qcclScatterV(send, usual, displs, recv, own, qcclFloat32, 0, comm, NULL);
        break;
    default:
        counts[0] = rank == 1 ? given->wrong : 4;
        done = qcclAllToAllV(send, counts, displs, recv, usual, displs, qcclFloat32, comm, NULL);
        break;
    }
    /* A rank that sends without waiting hears of the failure in its next call. */
    return done == qcclSuccess ? qcclBarrier(comm, NULL) : done;
}

static void check_sentence(int form, size_t wrong, const char *sentence)
{
    const differing_t given = {form, wrong};
    world_t world = make_world(3);
    const outcome_t outcome =
        on_every_rank(&world, call_with_other_count, (void *)(uintptr_t)&given);
    assert_all_say(&outcome, 3, qcclMismatch, sentence);
    end_world(&world);
}

static void counts_that_differ_are_named(void **state)
{
    (void)state;
    check_sentence(gathers_all, 5, "all_gather_v with count 13, rank 0 with count 12");
    check_sentence(scatters_sum, 3, "rank 1 calls reduce_scatter_v with other counts than rank 0");
    check_sentence(gathers, 5, "rank 1 sends 5 values to rank 0, which expects 4");
    check_sentence(gathers, 0, "rank 1 sends 0 values to rank 0, which expects 4");
    check_sentence(scatters, 3, "rank 0 sends 4 values to rank 1, which expects 3");
    check_sentence(exchanges, 15, "rank 1 sends 15 values to rank 0, which expects 4");
}

/* The sender's part ends with a segment, where the receiver's goes on, or the other way round. */
typedef struct {
    size_t sent, expected;
} lengths_t;

static qcclResult_t send_long_part(int rank, qcclComm_t comm, void *context)
{
    const lengths_t *const lengths = context;
    const size_t counts[2] = {0, lengths->expected};
    float *const memory = calloc(most_part, sizeof(float));
    qcclResult_t done = qcclGatherV(memory, rank == 1 ? lengths->sent : 0, memory, counts, NULL,
                                    qcclFloat32, 0, comm, NULL);
    if (done == qcclSuccess) done = qcclBarrier(comm, NULL);
    free(memory);
    return done;
}

static void check_lengths(size_t sent, size_t expected, const char *sentence)
{
    lengths_t lengths = {sent, expected};
    world_t world = make_world(2);
    const outcome_t outcome = on_every_rank(&world, send_long_part, &lengths);
    assert_all_say(&outcome, 2, qcclMismatch, sentence);
    end_world(&world);
}

static void ends_at_segments_are_noticed(void **state)
{
    (void)state;
    check_lengths(2 * segment, 3 * segment,
                  "rank 1 sends 2048 values to rank 0, which expects 3072");
    check_lengths(3 * segment, 2 * segment,
                  "rank 1 sends at least 3072 values to rank 0, which expects 2048");
    check_lengths(segment, segment + 1, "rank 1 sends 1024 values to rank 0, which expects 1025");
    check_lengths(segment + 1, segment, "rank 1 sends 1025 values to rank 0, which expects 1024");
    check_lengths(0, segment, "rank 1 sends 0 values to rank 0, which expects 1024");
}

/* ---- Groups and streams */

/* The library reads the counts before the functions return, so the caller may reuse them. Between
 * the parts that rank 0 sends lie those that it receives. */
static qcclResult_t exchange_later(int rank, qcclComm_t comm, void *context)
{
    float memory[40], sum = 1;
    size_t counts[2], sent[2], received[2];
    qcclStream_t stream = NULL;
    qcclResult_t done;
    int i;
    const int in_group = *(const int *)context;
    for (i = 0; i < 40; i++) memory[i] = (float)(100 * rank + i);
    for (i = 0; i < 2; i++) {
        counts[i] = 5;
        sent[i] = (size_t)(20 * i);
        received[i] = (size_t)(20 * i) + 10;
    }
    if (in_group)
        done = qcclGroupStart();
    else
        done = qcclStreamCreate(&stream);
    if (done != qcclSuccess) return done;
    done = qcclAllToAllV(memory, counts, sent, memory, counts, received, qcclFloat32, comm, stream);
    memset(counts, 0xFF, sizeof counts);
    memset(sent, 0xFF, sizeof sent);
    memset(received, 0xFF, sizeof received);
    if (done == qcclSuccess)
        done = qcclAllReduce(&sum, &sum, 1, qcclFloat32, qcclSum, comm, stream);
    if (done == qcclSuccess) done = in_group ? qcclGroupEnd() : qcclStreamSynchronize(stream);
    if (stream) (void)qcclStreamDestroy(stream);
    if (done != qcclSuccess) return done;
    for (i = 0; i < 5; i++)
        if (memory[10 + i] != (float)(20 * rank + i) ||
            memory[30 + i] != (float)(100 + 20 * rank + i))
            return qcclInternalError;
    return sum == 2 ? qcclSuccess : qcclInternalError;
}

static void counts_are_read_before_the_function_returns(void **state)
{
    int in_group;
    (void)state;
    for (in_group = 0; in_group < 2; in_group++) {
        world_t world = make_world(2);
        const outcome_t outcome = on_every_rank(&world, exchange_later, &in_group);
        assert_all_succeed(&outcome, 2);
        end_world(&world);
    }
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_equal_those_of_the_collective),
#ifndef ON_GPUS
        cmocka_unit_test(counts_that_differ_are_named),
        cmocka_unit_test(ends_at_segments_are_noticed),
        cmocka_unit_test(counts_are_read_before_the_function_returns),
#endif
    };
    if (setenv("QCCL_SEGMENT", "4K", 1) != 0) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
