/* Trains models with coarse codecs. A least-squares problem is spread over four ranks, which
 * average their gradients with a codec in each step. With a state the loss comes within 5 % of the
 * lossless one in as many steps; without one it stays far above. A run that stops in the middle,
 * saves, and goes on in other communicators ends with the bits of the run that does not. */
#include "tests/api/api_kit.h"

#include <stdlib.h>
#include <string.h>

enum { ranks = 4, features = 512, rows = 256, middle = 137, sums = 16 };

/* The rows of one rank, and what the model should say of each. */
typedef struct {
    float x[rows][features], y[rows];
} data_t;

typedef struct {
    const char *codec; /* NULL: lossless */
    int has_state, stops;
    float rate, momentum;
    /* By rank. */
    float weights[ranks][features];
    double loss[ranks];
    unsigned char *saved[ranks];
    size_t saved_bytes[ranks];
    int from, to;
} training_t;

static data_t *data[ranks];

static uint32_t mixed(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7FEB352Du;
    x ^= x >> 15;
    x *= 0x846CA68Bu;
    return x ^ x >> 16;
}

/* About normal: the sum of four uniform numbers. */
static float drawn(uint32_t number)
{
    uint32_t i;
    float sum = 0;
    for (i = 0; i < 4; i++) sum += (float)(mixed(number * 4 + i) >> 8) / 16777216.0f - 0.5f;
    return sum * 1.7320508f;
}

/* Features have scales of their own, as those of gradients have, and the targets have noise. */
static int make_data(void **state)
{
    int rank, i, j;
    (void)state;
    for (rank = 0; rank < ranks; rank++) {
        data[rank] = malloc(sizeof *data[rank]);
        for (i = 0; i < rows; i++) {
            float y = drawn((uint32_t)(900000000 + rank * rows + i)) * 2;
            for (j = 0; j < features; j++) {
                const float scale = 1.0f / (1.0f + (float)(j % 16) / 4);
                const float x = drawn((uint32_t)((rank * rows + i) * features + j)) * scale;
                data[rank]->x[i][j] = x;
                y += x * drawn((uint32_t)(800000000 + j));
            }
            data[rank]->y[i] = y;
        }
    }
    return 0;
}

static int free_data(void **state)
{
    int rank;
    (void)state;
    for (rank = 0; rank < ranks; rank++) free(data[rank]);
    return 0;
}

/* One sum would wait for each addition before the next one. */
static float product(const float *x, const float *weights)
{
    float sum[sums] = {0}, total = 0;
    int i, j;
    for (j = 0; j < features; j += sums)
        for (i = 0; i < sums; i++) sum[i] += x[j + i] * weights[j + i];
    for (i = 0; i < sums; i++) total += sum[i];
    return total;
}

/* Half of the mean of the squared errors of a rank's rows; its gradient, if it is wanted. */
static double look(int rank, const float *weights, float *gradient)
{
    double loss = 0;
    int i, j;
    if (gradient) memset(gradient, 0, features * sizeof *gradient);
    for (i = 0; i < rows; i++) {
        const float *const x = data[rank]->x[i];
        const float error = product(x, weights) - data[rank]->y[i];
        loss += (double)error * error / (2 * rows);
        for (j = 0; gradient && j < features; j++) gradient[j] += error * x[j] / rows;
    }
    return loss;
}

static qcclResult_t step_on(training_t *t, int rank, qcclComm_t comm,
                            const qcclCollConfig_t *config)
{
    float *const weights = t->weights[rank];
    float gradient[features], velocity[features] = {0};
    /* A state has the momentum of its codec, and otherwise it is the optimiser's. */
    const float momentum = t->has_state ? 0 : t->momentum;
    qcclResult_t done = qcclSuccess;
    int step, j;
    for (step = t->from; step < t->to && done == qcclSuccess; step++) {
        look(rank, weights, gradient);
        done = qcclAllReduceConfig(gradient, gradient, features, qcclFloat32, qcclAvg, comm, NULL,
                                   config);
        for (j = 0; j < features; j++) {
            velocity[j] = momentum * velocity[j] + gradient[j];
            weights[j] -= t->rate * velocity[j];
        }
    }
    return done;
}

static qcclResult_t train_part(int rank, qcclComm_t comm, void *context)
{
    training_t *const t = context;
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    qcclStateConfig_t settings = QCCL_STATE_CONFIG_INIT;
    qcclResult_t done = qcclSuccess;
    float sum = 0, part;
    config.algorithm = "direct";
    settings.seed = 11;
    settings.momentum = t->momentum;
    if (t->codec) done = qcclCodecCreate(&config.codec, t->codec);
    if (t->has_state && done == qcclSuccess)
        done = qcclStateCreate(&config.state, comm, features, qcclFloat32, &settings);
    if (t->saved[rank] && done == qcclSuccess)
        done = qcclStateLoad(config.state, t->saved[rank], t->saved_bytes[rank]);
    if (done == qcclSuccess) done = step_on(t, rank, comm, &config);
    if (t->stops && !t->saved[rank] && done == qcclSuccess) {
        done = qcclStateBytes(config.state, &t->saved_bytes[rank]);
        t->saved[rank] = malloc(t->saved_bytes[rank]);
        if (done == qcclSuccess)
            done = qcclStateSave(config.state, t->saved[rank], t->saved_bytes[rank]);
    }
    part = (float)look(rank, t->weights[rank], NULL);
    if (done == qcclSuccess) done = qcclAllReduce(&part, &sum, 1, qcclFloat32, qcclAvg, comm, NULL);
    t->loss[rank] = (double)sum;
    (void)qcclStateDestroy(config.state);
    (void)qcclCodecDestroy(config.codec);
    return done;
}

static void train_in_new_world(training_t *t)
{
    world_t world = make_world(ranks);
    const outcome_t outcome = on_every_rank(&world, train_part, t);
    assert_all_succeed(&outcome, ranks);
    end_world(&world);
}

typedef struct {
    const char *codec;
    float rate, momentum;
    int steps;
} trained_t;

static training_t *train(const trained_t *trained, const char *codec, int has_state, int stops)
{
    training_t *const t = calloc(1, sizeof *t);
    int rank;
    t->codec = codec;
    t->has_state = has_state;
    t->stops = stops;
    t->rate = trained->rate;
    t->momentum = trained->momentum;
    t->to = stops ? middle : trained->steps;
    train_in_new_world(t);
    if (stops) {
        t->from = middle;
        t->to = trained->steps;
        train_in_new_world(t);
    }
    for (rank = 0; rank < ranks; rank++) {
        free(t->saved[rank]);
        assert_memory_equal(t->weights[rank], t->weights[0], sizeof t->weights[0]);
    }
    return t;
}

static const trained_t trained[] = {
    {"onebit:min=0", 0.05f, 0, 400},
    {"tbq:threshold=0.3,min=0", 0.05f, 0, 400},
    {"terngrad:clip=1.5,min=0", 0.05f, 0, 400}, /* without clip it loses more than it is given */
    {"topk:ratio=0.01,min=0", 0.05f, 0, 400},
    {"int2:min=0", 0.05f, 0, 400},
    /* What is sent loses its momentum, so much momentum takes more steps to make no difference. */
    {"dgc:ratio=0.01,momentum=0.5,min=0", 0.03f, 0.5f, 400},
    {"dgc:ratio=0.01,momentum=0.7,warmup=200,min=0", 0.03f, 0.7f, 1200}, /* stops in its warm-up */
    {"dgc:ratio=0.02,min=0", 0.01f, 0.9f, 1400},
};

static void coarse_codecs_train_with_a_state(void **state)
{
    size_t i;
    (void)state;
    for (i = 0; i < sizeof trained / sizeof *trained; i++) {
        const trained_t *const now = &trained[i];
        training_t *const exact = train(now, NULL, 0, 0);
        training_t *const with = train(now, now->codec, 1, 0);
        training_t *const without = train(now, now->codec, 0, 0);
        print_message("%-46s loss %.4f lossless, %.4f with a state, %.4f without\n",
                      trained[i].codec, exact->loss[0], with->loss[0], without->loss[0]);
        assert_true(with->loss[0] < 1.05 * exact->loss[0]);
        assert_true(without->loss[0] > 1.1 * exact->loss[0]);
        free(exact);
        free(with);
        free(without);
    }
}

static void a_run_that_stops_ends_with_the_bits_of_one_that_does_not(void **state)
{
    size_t i;
    (void)state;
    for (i = 0; i < sizeof trained / sizeof *trained; i++) {
        trained_t now = trained[i];
        training_t *whole, *parts;
        now.steps = 2 * middle;
        whole = train(&now, now.codec, 1, 0);
        parts = train(&now, now.codec, 1, 1);
        assert_memory_equal(whole->weights, parts->weights, sizeof whole->weights);
        free(whole);
        free(parts);
    }
}

/* graddrop is another name of topk: what is sent, decoded and kept is the same. */
static void graddrop_trains_as_topk_does(void **state)
{
    static const trained_t now = {"topk:ratio=0.01,min=0", 0.05f, 0, middle};
    training_t *const by_name = train(&now, "graddrop:min=0", 1, 0);
    training_t *const by_key = train(&now, now.codec, 1, 0);
    training_t *const of_more = train(&now, "graddrop:ratio=0.02,min=0", 1, 0);
    (void)state;
    assert_memory_equal(by_name->weights, by_key->weights, sizeof by_key->weights);
    assert_memory_not_equal(of_more->weights, by_key->weights, sizeof by_key->weights);
    free(by_name);
    free(by_key);
    free(of_more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coarse_codecs_train_with_a_state),
        cmocka_unit_test(graddrop_trains_as_topk_does),
        cmocka_unit_test(a_run_that_stops_ends_with_the_bits_of_one_that_does_not),
    };
    return cmocka_run_group_tests(tests, make_data, free_data);
}
