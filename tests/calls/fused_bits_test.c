/* Compares every result of a group byte for byte with that of a twin communicator, which makes the
 * same groups and fuses nothing: all-reduces, all-gathers and reduce-scatters by each algorithm and
 * with each codec, in place and not, on streams and not, with counts that leave blocks incomplete.
 * Each algorithm meets each codec on one number of ranks, and with QTEST_FULL=1 on all.
 */
#include "tests/api/api_kit.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { calls = 10, most_bytes = 8, least_ranks = 2, sizes = 3 };

static const size_t counts[calls] = {1, 1000, 0, 7, 1500, 64, 320, 3, 129, 31};
/* All-reduces have this count in the place of the longest: together they outgrow an eager slot. */
enum { longest = 4, longest_of_all_reduces = 6000 };

/* The highest byte of a value is `least` plus some bits of `varying`, and a sign: values of codecs
 * that differ in size, but not so much that most of them become zero. */
static const struct {
    qcclDataType_t type;
    size_t bytes;
    unsigned least, varying;
} types[] = {{qcclFloat32, 4, 0x3C, 3},     {qcclFloat64, 8, 0x3F, 0},
             {qcclFloat16, 2, 0x38, 3},     {qcclBfloat16, 2, 0x3C, 3},
             {qcclFloat8e4m3, 1, 0x30, 15}, {qcclFloat8e5m2, 1, 0x38, 7},
             {qcclInt32, 4, 0, 0x7F},       {qcclInt16, 2, 0, 0x7F}};
enum { kinds_of_type = sizeof types / sizeof types[0] };

typedef enum { always, sometimes, never } fuses_t;
static const struct {
    const char *spec; /* NULL: none */
    fuses_t fuses;    /* sometimes: the calls that leave no bucket incomplete */
} codecs[] = {{NULL, always},
              {"fp16", always},
              {"bf16", always},
              {"fp8e4m3", always},
              {"fp8e5m2", always},
              {"fp8e4m3:block=64", always},
              {"int8", always},
              {"int8:owner=exact", always},
              {"int4", always},
              {"int3:block=96", always},
              {"int6:block=1", always},
              {"int12:block=8", always},
              {"minmax:bits=4,bucket=64", always},
              {"mxfp8e4m3", always},
              {"mxfp6e2m3", always},
              {"mxfp4:scale=ocp", always},
              {"nvfp4:bucket=64,scale=ceil", always},
              {"nvfp4", always},
              {"tbq:threshold=0.5", always},
              {"minmax:bits=5,bucket=100,skip_incomplete=1", sometimes},
              {"onebit:bucket=100", sometimes},
              {"norm:bits=5,bucket=100,round=nearest", sometimes},
              {"int8:round=stochastic", never},
              {"norm:bits=4", never},
              {"int4:rotate=64", sometimes},
              {"int4:rotate=256", never}, /* no count is a multiple of 256 but 0 */
              {"bound:abs=0.01", always},
              {"bound:pw=0.01", always},
              {"bound", never},
              {"exact", never},
              {"mxfp4:round=stochastic", never},
              {"fp8e5m2:block=32,round=stochastic", never},
              {"terngrad:bucket=100", never},
              {"topk:ratio=0.1", never},
              {"dummy", never},
              {"minmax:bits=2,bucket=all", never},
              {"nvfp4:bucket=all", never}};
enum { kinds_of_codec = sizeof codecs / sizeof codecs[0] };

typedef enum { all_reduce, all_gather, reduce_scatter } collective_t;
static const struct {
    collective_t collective;
    const char *name;
} algorithms[] = {{all_reduce, "oneshot"},
                  {all_reduce, "direct"},
                  {all_reduce, "doubling"},
                  {all_reduce, "ring"},
                  {all_reduce, "halving"},
                  {all_reduce, "tree"},
                  {all_reduce, "tree:shape=double"},
                  {all_gather, "direct"},
                  {all_gather, "ring"},
                  {all_gather, "halving"},
                  {all_gather, "bruck"},
                  {reduce_scatter, "direct"},
                  {reduce_scatter, "oneshot"},
                  {reduce_scatter, "ring"},
                  {reduce_scatter, "halving"}};
enum { kinds_of_algorithm = sizeof algorithms / sizeof algorithms[0] };

typedef struct {
    size_t algorithm, codec, type;
    int is_in_place, uses_stream;
} case_t;

/* What a rank has found. */
typedef struct {
    size_t compared, not_possible, fused;
    char complaint[128];
} finding_t;

/* One rank and its memory: inputs, results of calls by themselves and of fused ones. */
typedef struct {
    int rank, size;
    qcclComm_t comm, twin;
    qcclStream_t stream;
    qcclCodec_t codecs[kinds_of_codec];
    size_t room;
    unsigned char *input, *alone, *grouped;
} rank_t;

static void fill(unsigned char *values, size_t bytes, const case_t *which, unsigned seed)
{
    const size_t value = types[which->type].bytes;
    size_t i;
    for (i = 0; i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (unsigned char)(seed >> 24);
        if (i % value == value - 1)
            values[i] = (unsigned char)((values[i] & 0x80) + types[which->type].least +
                                        ((seed >> 16) & types[which->type].varying));
    }
}

static uint64_t calls_of(qcclComm_t comm)
{
    qcclCommStats_t stats;
    memset(&stats, 0, sizeof stats);
    stats.size = sizeof stats;
    return qcclCommGetStats(comm, &stats) == qcclSuccess ? stats.calls : 0;
}

static qcclResult_t make_call(const rank_t *me, qcclComm_t comm, const case_t *which, size_t count,
                              unsigned char *send, unsigned char *recv, qcclStream_t stream)
{
    const collective_t collective = algorithms[which->algorithm].collective;
    const qcclDataType_t type = types[which->type].type;
    const size_t own = (size_t)me->rank * count * types[which->type].bytes;
    const qcclRedOp_t op = which->type % 2 ? qcclSum : qcclAvg;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.algorithm = algorithms[which->algorithm].name;
    config.codec = me->codecs[which->codec];
    if (which->is_in_place) send = recv;
    switch (collective) {
    case all_reduce: return qcclAllReduceConfig(send, recv, count, type, op, comm, stream, &config);
    case all_gather:
        return qcclAllGatherConfig(which->is_in_place ? recv + own : send, recv, count, type, comm,
                                   stream, &config);
    case reduce_scatter: break;
    }
    return qcclReduceScatterConfig(send, which->is_in_place ? recv + own : recv, count, type, op,
                                   comm, stream, &config);
}

static size_t count_of(const case_t *which, int call)
{
    return call == longest && algorithms[which->algorithm].collective == all_reduce
               ? longest_of_all_reduces
               : counts[call];
}

static size_t vector_bytes(const rank_t *me, const case_t *which, size_t count)
{
    const int has_parts = algorithms[which->algorithm].collective != all_reduce;
    return count * types[which->type].bytes * (has_parts ? (size_t)me->size : 1);
}

/* Makes all calls, each with memory of its own. */
static qcclResult_t make_calls(const rank_t *me, qcclComm_t comm, const case_t *which,
                               unsigned char *recv, qcclStream_t stream)
{
    qcclResult_t result = qcclSuccess;
    size_t at = 0;
    int i;
    for (i = 0; i < calls && result == qcclSuccess; i++) {
        const size_t count = count_of(which, i);
        result = make_call(me, comm, which, count, me->input + at, recv + at, stream);
        at += vector_bytes(me, which, count);
    }
    return result;
}

static int complain(finding_t *finding, const case_t *which, const char *what, int number)
{
    if (finding->complaint[0] == '\0')
        snprintf(finding->complaint, sizeof finding->complaint, "%s with %s, type %d%s: %s %d",
                 algorithms[which->algorithm].name,
                 codecs[which->codec].spec ? codecs[which->codec].spec : "none",
                 types[which->type].type, which->is_in_place ? ", in place" : "", what, number);
    return 0;
}

static qcclResult_t make_group(const rank_t *me, qcclComm_t comm, const case_t *which,
                               unsigned char *recv, qcclStream_t stream)
{
    qcclResult_t result = qcclGroupStart(), ended;
    if (result != qcclSuccess) return result;
    result = make_calls(me, comm, which, recv, stream);
    ended = qcclGroupEnd();
    if (result == qcclSuccess) result = ended;
    return result == qcclSuccess && stream ? qcclStreamSynchronize(stream) : result;
}

/* Returns 0 when the ranks cannot go on. */
static int compare(rank_t *me, const case_t *which, finding_t *finding)
{
    const fuses_t fuses = codecs[which->codec].fuses;
    const uint64_t before = calls_of(me->comm);
    uint64_t made;
    qcclResult_t result;
    fill(me->input, me->room, which, (unsigned)me->rank + 1);
    memcpy(me->alone, me->input, me->room);
    memcpy(me->grouped, me->input, me->room);
    result = make_group(me, me->twin, which, me->alone, NULL);
    if (result == qcclInvalidArgument) { /* there is no such codec for the type, or no owner */
        finding->not_possible++;
        return 1;
    }
    if (result == qcclSuccess)
        result =
            make_group(me, me->comm, which, me->grouped, which->uses_stream ? me->stream : NULL);
    if (result != qcclSuccess) return complain(finding, which, "result", result);
    made = calls_of(me->comm) - before;
    if (memcmp(me->alone, me->grouped, me->room) != 0)
        complain(finding, which, "other bits with calls:", (int)made);
    if (fuses == always ? made != 1 : fuses == never ? made != calls : made == 1 || made == calls)
        complain(finding, which, "calls:", (int)made);
    finding->compared++;
    if (made < calls) finding->fused++;
    return 1;
}

static int compare_all(rank_t *me, finding_t *finding)
{
    const int is_full = getenv("QTEST_FULL") != NULL;
    case_t which;
    memset(&which, 0, sizeof which);
    for (which.algorithm = 0; which.algorithm < kinds_of_algorithm; which.algorithm++)
        for (which.codec = 0; which.codec < kinds_of_codec; which.codec++) {
            const size_t number = which.algorithm * kinds_of_codec + which.codec;
            const size_t first = which.codec == 0 ? 0 : number % kinds_of_type;
            const size_t end = which.codec == 0 ? kinds_of_type : first + 1;
            if (which.codec != 0 && !is_full &&
                number / 3 % sizes != (size_t)(me->size - least_ranks))
                continue;
            /* Types of integers go without a codec. */
            for (which.type = first; which.type < end; which.type++) {
                which.is_in_place = (int)(number / 2 + which.type) % 2;
                which.uses_stream = (int)(number + which.algorithm) % 3 == 0;
                if (!compare(me, &which, finding)) return 0;
            }
            which.type = 0;
            which.is_in_place = (int)number % 2;
            if (!compare(me, &which, finding)) return 0;
        }
    return 1;
}

typedef struct {
    world_t twin;
    finding_t findings[most_ranks];
} comparison_t;

static qcclResult_t compare_on_rank(int rank, qcclComm_t comm, void *context)
{
    comparison_t *comparison = context;
    finding_t *finding = &comparison->findings[rank];
    rank_t me = {.rank = rank, .comm = comm, .twin = comparison->twin.comms[rank]};
    qcclResult_t result = qcclCommCount(comm, &me.size);
    size_t i;
    for (i = 0; i < calls; i++) me.room += counts[i] * most_bytes * (size_t)me.size;
    me.room += longest_of_all_reduces * most_bytes;
    me.input = malloc(me.room);
    me.alone = malloc(me.room);
    me.grouped = malloc(me.room);
    if (result == qcclSuccess) result = qcclStreamCreate(&me.stream);
    for (i = 1; i < kinds_of_codec && result == qcclSuccess; i++)
        result = qcclCodecCreate(&me.codecs[i], codecs[i].spec);
    if (result == qcclSuccess && !compare_all(&me, finding)) result = qcclInternalError;
    for (i = 1; i < kinds_of_codec; i++) qcclCodecDestroy(me.codecs[i]);
    qcclStreamDestroy(me.stream);
    free(me.input);
    free(me.alone);
    free(me.grouped);
    return result;
}

static void fused_calls_have_the_bits_of_their_own(void **state)
{
    qcclConfig_t fuse_nothing[most_ranks];
    int size, rank;
    (void)state;
    for (rank = 0; rank < most_ranks; rank++) {
        fuse_nothing[rank] = (qcclConfig_t)QCCL_CONFIG_INIT;
        fuse_nothing[rank].fusion = -1;
    }
    for (size = least_ranks; size < least_ranks + sizes; size++) {
        world_t world = size % 2 ? join_world(size, NULL) : make_world(size);
        comparison_t comparison;
        outcome_t outcome;
        memset(&comparison, 0, sizeof comparison);
        comparison.twin = join_world(size, fuse_nothing);
        outcome = on_every_rank(&world, compare_on_rank, &comparison);
        for (rank = 0; rank < size; rank++) {
            const finding_t *finding = &comparison.findings[rank];
            assert_string_equal(finding->complaint, "");
            assert_true(finding->compared > 5 * finding->not_possible);
            assert_true(finding->fused > 0);
        }
        assert_all_succeed(&outcome, size);
        end_world(&comparison.twin);
        end_world(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_calls_have_the_bits_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
