// Tests plan/layer_codecs: the codecs of layers keep the error of the uniform codec and take as few
// bits as the best of all possible choices, within the steps of the budget.
#include "tests/kit/qtest.hpp"

#include "plan/layer_codecs.hpp"

#include <cmath>
#include <limits>
#include <random>

using namespace qccl;

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

// The fewest bits of all choices whose error is at most the budget.
double fewest_bits(std::span<const LayerOptions> layers, double budget) {
    if (budget < 0) return infinite;
    if (layers.empty()) return 0;
    double fewest = infinite;
    for (const LayerOption &option : layers.front())
        fewest =
            std::min(fewest, option.bits + fewest_bits(layers.subspan(1), budget - option.error));
    return fewest;
}

LayerOption sum_of(std::span<const LayerOptions> layers, const std::vector<uint32_t> &codecs) {
    LayerOption sum;
    for (size_t layer = 0; layer < layers.size(); layer++) {
        if (layers[layer].empty()) continue;
        sum.bits += layers[layer][codecs[layer]].bits;
        sum.error += layers[layer][codecs[layer]].error;
    }
    return sum;
}

// Errors of codecs of 2 to 8 bits on layers of very different strength.
std::vector<LayerOptions> random_layers(std::mt19937 &random, size_t count, size_t codecs) {
    std::uniform_real_distribution<double> one(0, 1);
    std::vector<LayerOptions> layers(count);
    for (LayerOptions &layer : layers) {
        const double values = std::exp2(12 * one(random)), strength = std::exp2(10 * one(random));
        for (size_t codec = 0; codec < codecs; codec++) {
            const double bits = 2 + static_cast<double>(codec) + one(random);
            layer.push_back({values * bits, values * strength * std::exp2(-2 * bits)});
        }
    }
    return layers;
}

} // namespace

static void no_choice_is_better() {
    std::mt19937 random(1);
    size_t gains = 0;
    for (int turn = 0; turn < 300; turn++) {
        const auto layers = random_layers(random, 1 + random() % 7, 2 + random() % 4);
        const auto uniform = static_cast<uint32_t>(random() % layers[0].size());
        const LayerChoice choice = choose_layer_codecs(layers, uniform);
        CHECK_EQ(choice.codecs.size(), layers.size());
        const LayerOption chosen = sum_of(layers, choice.codecs);
        const LayerOption before = sum_of(layers, std::vector<uint32_t>(layers.size(), uniform));
        CHECK(std::fabs(choice.chosen.bits - chosen.bits) < 1e-9 * chosen.bits);
        CHECK(std::fabs(choice.chosen.error - chosen.error) <= 1e-9 * chosen.error);
        CHECK(choice.uniform.bits == before.bits && choice.uniform.error == before.error);
        CHECK(chosen.bits <= before.bits && chosen.error <= before.error * (1 + 1e-12));
        CHECK(chosen.bits >= fewest_bits(layers, before.error * (1 + 1e-12)) * (1 - 1e-12));
        const double lost = static_cast<double>(layers.size()) / budget_steps;
        const double almost = fewest_bits(layers, before.error * (1 - lost));
        CHECK(chosen.bits <= std::min(almost, before.bits) * (1 + 1e-12));
        gains += chosen.bits < before.bits;
    }
    CHECK(gains > 50);
}

static void layers_of_one_kind_keep_the_uniform_codec() {
    const std::vector<LayerOptions> layers(50, {{300, 40}, {400, 10}, {500, 2.5}});
    for (const uint32_t uniform : {0U, 1U, 2U}) {
        const LayerChoice choice = choose_layer_codecs(layers, uniform);
        CHECK(choice.chosen.bits <= choice.uniform.bits);
        CHECK(choice.chosen.bits > choice.uniform.bits * 0.98);
    }
}

// Errors that are rounded to steps would leave no room for any choice.
static void fewer_bits_at_no_more_error_are_always_chosen() {
    const std::vector<LayerOptions> layers(3, {{45, 1.23}, {20, 1.23}, {10, 1.24}});
    const LayerChoice choice = choose_layer_codecs(layers, 0);
    CHECK(choice.codecs == std::vector<uint32_t>(3, 1));
    CHECK(choice.bits == std::vector<double>(3, 20));
    CHECK_EQ(choice.chosen.bits, 60.0);
    CHECK_EQ(choice.chosen.error, choice.uniform.error);
}

static void what_is_not_known_keeps_the_uniform_codec() {
    const LayerOptions strong{{200, 900}, {400, 100}, {800, 1}}, weak{{200, 9}, {400, 1}, {800, 0}};
    const LayerOptions broken{{1, infinite}, {2, infinite}, {3, infinite}};
    const std::vector<LayerOptions> layers{strong, {}, weak, broken, weak};
    const LayerChoice choice = choose_layer_codecs(layers, 1);
    CHECK_EQ(choice.codecs[1], 1U);
    CHECK_EQ(choice.codecs[3], 1U);
    CHECK_EQ(choice.uniform.bits, 1200.0);
    CHECK_EQ(choice.uniform.error, 102.0);
    CHECK(choice.chosen.error <= 102 && choice.chosen.bits == 1200);
    // A codec that breaks one layer is not chosen for it.
    const LayerOptions partly{{200, infinite}, {400, 1}, {800, 0}};
    CHECK(choose_layer_codecs(std::vector{partly, strong}, 1).codecs[0] != 0);
}

static void a_budget_of_nothing_is_kept() {
    const LayerOptions zeros{{200, 0}, {400, 0}}, exact{{300, 5}, {600, 0}};
    const LayerChoice choice = choose_layer_codecs(std::vector{zeros, exact}, 1);
    CHECK_EQ(choice.codecs[0], 0U);
    CHECK_EQ(choice.codecs[1], 1U);
    CHECK_EQ(choice.chosen.error, 0.0);
    CHECK(choose_layer_codecs({}, 0).codecs.empty());
    // A budget that has overflowed allows nothing.
    const LayerOptions huge{{200, 1.5e308}, {400, 1e308}};
    const LayerChoice uniform = choose_layer_codecs(std::vector{huge, huge}, 1);
    CHECK(uniform.codecs == std::vector<uint32_t>(2, 1));
}

static void as_many_layers_and_codecs_as_allowed() {
    LayerOptions options;
    for (size_t i = 0; i < most_layer_codecs; i++) {
        const double bits = 1 + static_cast<double>(i) / 16;
        options.push_back({bits, std::exp2(-2 * bits)});
    }
    std::vector<LayerOptions> layers(64, options);
    for (LayerOption &option : layers[7]) option.error *= 1e6;
    const LayerChoice choice = choose_layer_codecs(layers, most_layer_codecs / 2);
    CHECK(choice.chosen.error <= choice.uniform.error);
    CHECK(choice.codecs[7] > choice.codecs[6]);
}

static void the_usual_codecs_differ_in_bits() {
    const std::vector<Codec> codecs = usual_layer_codecs();
    CHECK(codecs.size() >= 8 && codecs.size() <= most_layer_codecs);
    for (size_t i = 0; i < codecs.size(); i++)
        for (size_t j = 0; j < i; j++) CHECK(spec(codecs[i]) != spec(codecs[j]));
    CHECK(codecs.back().is_lossless());
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(no_choice_is_better),
        QTEST(layers_of_one_kind_keep_the_uniform_codec),
        QTEST(fewer_bits_at_no_more_error_are_always_chosen),
        QTEST(what_is_not_known_keeps_the_uniform_codec),
        QTEST(a_budget_of_nothing_is_kept),
        QTEST(as_many_layers_and_codecs_as_allowed),
        QTEST(the_usual_codecs_differ_in_bits),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
