/* A program that prints a rank's results: for each argument ALGORITHM@CODEC a line per collective
 * with a hash of the result. Without a name the planner chooses the algorithm. The same job on
 * other hosts must print the same. Launchers start it as one rank of a job.
 *
 * usage: results explain | results COUNT [ALGORITHM]@CODEC... */
#include <qccl/qccl.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    reduce,
    gather,
    scatter,
    all_to_all,
    scan,
    exscan,
    all_gather_v,
    reduce_scatter_v,
    gather_v,
    scatter_v,
    all_to_all_v,
    collectives
};
enum { most_ranks = 64 };
static const char *const names[collectives] = {
    "all_reduce",   "reduce_scatter",   "all_gather", "broadcast", "reduce",
    "gather",       "scatter",          "all_to_all", "scan",      "exscan",
    "all_gather_v", "reduce_scatter_v", "gather_v",   "scatter_v", "all_to_all_v"};

static qcclComm_t comm;
static int rank, ranks;

static int fail(const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, qcclGetLastError(comm));
    return 1;
}

/* Writes values of many magnitudes that differ between ranks. */
static void fill(float *values, size_t count)
{
    uint64_t state = 88172645463325252u + (uint64_t)rank * 7919u;
    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        values[i] = (float)((double)(int64_t)state / 9.2e18) / (float)(1 << state % 12);
    }
}

/* FNV-1a. */
static uint64_t hash_of(const void *data, size_t bytes)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001B3u;
    return hash;
}

/* The parts of a v-form; none has more than `count` values. */
typedef struct {
    size_t sent[most_ranks], received[most_ranks], own[most_ranks];
    size_t received_total, own_total;
} parts_t;

static size_t part_of(size_t count, int from, int to)
{
    return count * (size_t)(1 + (from * 3 + to * 5) % 4) / 4;
}

static parts_t parts_of(size_t count)
{
    parts_t parts = {0};
    for (int other = 0; other < ranks; other++) {
        parts.sent[other] = part_of(count, rank, other);
        parts.received[other] = part_of(count, other, rank);
        parts.own[other] = part_of(count, other, other);
        parts.received_total += parts.received[other];
        parts.own_total += parts.own[other];
    }
    return parts;
}

static qcclResult_t call_v_form(int collective, const float *send, float *recv,
                                const parts_t *parts, const qcclCollConfig_t *config)
{
    const int root = ranks - 1;
    const size_t own = parts->own[rank];
    switch (collective) {
    case all_gather_v:
        return qcclAllGatherVConfig(send, recv, parts->own, NULL, qcclFloat32, comm,
                                    QCCL_STREAM_SYNC, config);
    case reduce_scatter_v:
        return qcclReduceScatterVConfig(send, recv, parts->own, NULL, qcclFloat32, qcclSum, comm,
                                        QCCL_STREAM_SYNC, config);
    case gather_v:
        return qcclGatherVConfig(send, own, recv, parts->own, NULL, qcclFloat32, root, comm,
                                 QCCL_STREAM_SYNC, config);
    case scatter_v:
        return qcclScatterVConfig(send, parts->own, NULL, recv, own, qcclFloat32, root, comm,
                                  QCCL_STREAM_SYNC, config);
    default:
        return qcclAllToAllVConfig(send, parts->sent, NULL, recv, parts->received, NULL,
                                   qcclFloat32, comm, QCCL_STREAM_SYNC, config);
    }
}

static size_t result_count(int collective, size_t count, const parts_t *parts)
{
    switch (collective) {
    case all_gather:
    case gather:
    case all_to_all: return count * (size_t)ranks;
    case all_gather_v:
    case gather_v: return parts->own_total;
    case reduce_scatter_v:
    case scatter_v: return parts->own[rank];
    case all_to_all_v: return parts->received_total;
    default: return count;
    }
}

static qcclResult_t call(int collective, const float *send, float *recv, size_t count,
                         const qcclCollConfig_t *config)
{
    switch (collective) {
    case all_reduce:
        return qcclAllReduceConfig(send, recv, count, qcclFloat32, qcclAvg, comm, QCCL_STREAM_SYNC,
                                   config);
    case reduce_scatter:
        return qcclReduceScatterConfig(send, recv, count, qcclFloat32, qcclSum, comm,
                                       QCCL_STREAM_SYNC, config);
    case all_gather:
        return qcclAllGatherConfig(send, recv, count, qcclFloat32, comm, QCCL_STREAM_SYNC, config);
    case broadcast:
        return qcclBroadcastConfig(send, recv, count, qcclFloat32, ranks - 1, comm,
                                   QCCL_STREAM_SYNC, config);
    case reduce:
        return qcclReduceConfig(send, recv, count, qcclFloat32, qcclSum, ranks - 1, comm,
                                QCCL_STREAM_SYNC, config);
    case gather:
        return qcclGatherConfig(send, recv, count, qcclFloat32, ranks - 1, comm, QCCL_STREAM_SYNC,
                                config);
    case scatter:
        return qcclScatterConfig(send, recv, count, qcclFloat32, ranks - 1, comm, QCCL_STREAM_SYNC,
                                 config);
    case all_to_all:
        return qcclAllToAllConfig(send, recv, count, qcclFloat32, comm, QCCL_STREAM_SYNC, config);
    case scan:
        return qcclScanConfig(send, recv, count, qcclFloat32, qcclSum, comm, QCCL_STREAM_SYNC,
                              config);
    default:
        return qcclExscanConfig(send, recv, count, qcclFloat32, qcclSum, comm, QCCL_STREAM_SYNC,
                                config);
    }
}

/* Prints the results of all collectives that the algorithm supports. */
static int show(const char *word, size_t count, const float *send, float *recv)
{
    char algorithm[128] = "";
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    const char *const codec = strchr(word, '@') + 1;
    memcpy(algorithm, word, (size_t)(codec - word) - 1);
    config.algorithm = algorithm[0] ? algorithm : NULL;
    if (qcclCodecCreate(&config.codec, codec) != qcclSuccess) return fail(word);
    const parts_t parts = parts_of(count);
    for (int collective = 0; collective < collectives; collective++) {
        const int is_of_root =
            collective == reduce || collective == gather || collective == gather_v;
        const size_t whole = result_count(collective, count, &parts);
        const qcclResult_t result = collective >= all_gather_v
                                        ? call_v_form(collective, send, recv, &parts, &config)
                                        : call(collective, send, recv, count, &config);
        if (result == qcclInvalidArgument) continue; /* there is no such schedule */
        if (result != qcclSuccess) return fail(word);
        if ((is_of_root && rank != ranks - 1) || (collective == exscan && rank == 0)) {
            printf("%s %s none\n", names[collective], word);
            continue;
        }
        printf("%s %s %016llx\n", names[collective], word,
               (unsigned long long)hash_of(recv, whole * sizeof *recv));
    }
    qcclCodecDestroy(config.codec);
    return 0;
}

static int explain(void)
{
    static char text[1 << 16];
    size_t bytes = sizeof text;
    if (qcclExplain(comm, "all_reduce bytes=64M", text, &bytes) != qcclSuccess)
        return fail("explain");
    if (rank == 0) fputs(text, stdout);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0;
    if (argc < 2) return 2;
    if (qcclCommInitEnv(&comm, NULL) != qcclSuccess) return fail("qcclCommInitEnv");
    qcclCommUserRank(comm, &rank);
    qcclCommCount(comm, &ranks);
    if (ranks > most_ranks) return 2;
    if (strcmp(argv[1], "explain") == 0) {
        failed = explain();
    } else {
        const size_t count = strtoul(argv[1], NULL, 10), most = count * (size_t)ranks;
        float *const send = malloc(most * sizeof *send), *const recv = malloc(most * sizeof *recv);
        if (!send || !recv) return 1;
        fill(send, most);
        for (int i = 2; i < argc && !failed; i++) failed = show(argv[i], count, send, recv);
        free(send);
        free(recv);
    }
    return qcclCommDestroy(comm) != qcclSuccess || failed;
}
