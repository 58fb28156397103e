/* What the tests of states share: values, states of all ranks of a world, and saved states. */
#ifndef QCCL_TESTS_STATE_KIT_H
#define QCCL_TESTS_STATE_KIT_H

#include "tests/api/api_kit.h"

#include <stdlib.h>
#include <string.h>

enum { ranks = 4, count = 1203, header_bytes = 64 };

static inline float value_of(int rank, size_t i, int step)
{
    uint32_t x = (uint32_t)rank * 7919u + (uint32_t)i * 2654435761u + (uint32_t)step * 97u;
    x ^= x >> 13;
    x *= 2246822519u;
    x ^= x >> 16;
    return (float)(int32_t)(x % 20001u) / 1000.0f - 10.0f;
}

/* Reads what the state owes from its saved form. */
static inline qcclResult_t read_owed(qcclState_t state, float *owed, size_t n)
{
    size_t bytes = 0;
    unsigned char *saved;
    qcclResult_t done = qcclStateBytes(state, &bytes);
    if (done != qcclSuccess || bytes != header_bytes + n * sizeof *owed) return qcclInternalError;
    saved = malloc(bytes);
    done = qcclStateSave(state, saved, bytes);
    memcpy(owed, saved + header_bytes, n * sizeof *owed);
    free(saved);
    return done;
}

typedef struct {
    qcclCodec_t codec;
    qcclState_t states[ranks];
    int has_none; /* a rank whose call names no state */
    float *results;
} shared_t;

static inline qcclResult_t create_states(int rank, qcclComm_t comm, void *context)
{
    shared_t *const shared = context;
    const qcclStateConfig_t config = {sizeof config, QCCL_CONFIG_MAGIC, QCCL_VERSION, 9, 0, 0, {0}};
    return qcclStateCreate(&shared->states[rank], comm, count, qcclFloat32, &config);
}

static inline qcclResult_t reduce_once(int rank, qcclComm_t comm, void *context)
{
    shared_t *const shared = context;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    float values[count];
    size_t i;
    config.codec = shared->codec;
    config.algorithm = "doubling";
    if (rank != shared->has_none) config.state = shared->states[rank];
    for (i = 0; i < count; i++) values[i] = value_of(rank, i, 0);
    return qcclAllReduceConfig(values, shared->results + rank * count, count, qcclFloat32, qcclSum,
                               comm, NULL, &config);
}

static inline void begin(shared_t *shared, const world_t *of, const char *codec)
{
    outcome_t outcome;
    memset(shared, 0, sizeof *shared);
    shared->has_none = -1;
    shared->results = calloc(ranks * count, sizeof *shared->results);
    assert_int_equal(qcclCodecCreate(&shared->codec, codec), qcclSuccess);
    outcome = on_every_rank(of, create_states, shared);
    assert_all_succeed(&outcome, ranks);
}

static inline void finish(shared_t *shared)
{
    int rank;
    for (rank = 0; rank < ranks; rank++)
        assert_int_equal(qcclStateDestroy(shared->states[rank]), qcclSuccess);
    assert_int_equal(qcclCodecDestroy(shared->codec), qcclSuccess);
    free(shared->results);
}

static inline unsigned char *saved(qcclState_t state, size_t *bytes)
{
    unsigned char *buffer;
    assert_int_equal(qcclStateBytes(state, bytes), qcclSuccess);
    buffer = malloc(*bytes);
    assert_int_equal(qcclStateSave(state, buffer, *bytes), qcclSuccess);
    return buffer;
}

static inline void assert_is_saved(qcclState_t state, const unsigned char *before)
{
    size_t bytes;
    unsigned char *const now = saved(state, &bytes);
    assert_memory_equal(now, before, bytes);
    free(now);
}

/* Makes the checksum right again, whatever else is changed. */
static inline void seal(unsigned char *bytes, size_t size)
{
    enum { place = 52 };
    uint32_t crc = 0xFFFFFFFF;
    size_t i;
    int bit;
    memset(bytes + place, 0, sizeof crc);
    for (i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
    }
    crc = ~crc;
    memcpy(bytes + place, &crc, sizeof crc);
}

#endif
