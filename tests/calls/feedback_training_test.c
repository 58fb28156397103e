/* Trains models with coarse codecs. A least-squares problem is spread over four ranks, which
 * average their gradients with a codec in each step. With a state the loss comes within 5 % of the
 * lossless one in as many steps; without one it stays far above. A run that stops in the middle,
 * saves, and goes on in other communicators ends with the bits of the run that does not. */
#include "tests/api/api_kit.h"

#include <stdlib.h>
#include <string.h>

enum { ranks = 4, features = 512, rows = 256, steps = 400, middle = 137 };

/* The rows of one rank, and what the model should say of each. */
typedef struct {
    float x[rows][features], y[rows];
} data_t;

typedef struct {
    const char *codec; /* NULL: lossless */
    int has_state, stops;
    float rate;
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

/* Half of the mean of the squared errors of a rank's rows; its gradient, if it is wanted. */
static double look(int rank, const float *weights, float *gradient)
{
    double loss = 0;
    int i, j;
    if (gradient) memset(gradient, 0, features * sizeof *gradient);
    for (i = 0; i < rows; i++) {
        const float *const x = data[rank]->x[i];
        float error = -data[rank]->y[i];
        for (j = 0; j < features; j++) error += x[j] * weights[j];
        loss += (double)error * error / (2 * rows);
        for (j = 0; gradient && j < features; j++) gradient[j] += error * x[j] / rows;
    }
    return loss;
}

static qcclResult_t step_on(training_t *t, int rank, qcclComm_t comm,
                            const qcclCollConfig_t *config)
{
    float *const weights = t->weights[rank];
    float gradient[features];
    qcclResult_t done = qcclSuccess;
    int step, j;
    for (step = t->from; step < t->to && done == qcclSuccess; step++) {
        look(rank, weights, gradient);
        done = qcclAllReduceConfig(gradient, gradient, features, qcclFloat32, qcclAvg, comm, NULL,
                                   config);
        for (j = 0; j < features; j++) weights[j] -= t->rate * gradient[j];
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

static training_t *train(const char *codec, int has_state, int stops, float rate)
{
    training_t *const t = calloc(1, sizeof *t);
    int rank;
    t->codec = codec;
    t->has_state = has_state;
    t->stops = stops;
    t->rate = rate;
    t->to = stops ? middle : steps;
    train_in_new_world(t);
    if (stops) {
        t->from = middle;
        t->to = steps;
        train_in_new_world(t);
    }
    for (rank = 0; rank < ranks; rank++) {
        free(t->saved[rank]);
        assert_memory_equal(t->weights[rank], t->weights[0], sizeof t->weights[0]);
    }
    return t;
}

typedef struct {
    const char *codec;
    float rate;
} trained_t;

static const trained_t trained[] = {
    {"onebit:min=0", 0.05f},
    {"terngrad:clip=1.5,min=0", 0.05f}, /* without clip it loses more than it is given */
    {"topk:ratio=0.01,min=0", 0.05f},
    {"int2:min=0", 0.05f},
};

static void coarse_codecs_train_with_a_state(void **state)
{
    size_t i;
    (void)state;
    for (i = 0; i < sizeof trained / sizeof *trained; i++) {
        training_t *const exact = train(NULL, 0, 0, trained[i].rate);
        training_t *const with = train(trained[i].codec, 1, 0, trained[i].rate);
        training_t *const without = train(trained[i].codec, 0, 0, trained[i].rate);
        print_message("%-24s loss %.4f lossless, %.4f with a state, %.4f without\n",
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
        training_t *const whole = train(trained[i].codec, 1, 0, trained[i].rate);
        training_t *const parts = train(trained[i].codec, 1, 1, trained[i].rate);
        assert_memory_equal(whole->weights, parts->weights, sizeof whole->weights);
        free(whole);
        free(parts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coarse_codecs_train_with_a_state),
        cmocka_unit_test(a_run_that_stops_ends_with_the_bits_of_one_that_does_not),
    };
    return cmocka_run_group_tests(tests, make_data, free_data);
}
