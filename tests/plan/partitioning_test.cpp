// Tests choose_partitioning() of lib/plan/tensor_plan: given the formulas and constants that
// HiPress published for SeCoPa, it decides what SeCoPa decides, and it treats times that hardly
// differ as equal.
#include "tests/kit/qtest.hpp"

#include "plan/tensor_plan.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

using namespace qccl;

namespace {

// Milliseconds of an operation on a number of floats: linear, and never less than `least`.
struct Linear {
    double per_float, fixed, least;

    double of(double floats) const { return std::max(least, fixed + per_float * floats); }
};

enum class Strategy : uint8_t { parameter_servers, ring };

// Figures of HiPress' SeCoPa (src/SeCoPa/SeCoPa.py of its source) for nodes that each hold a
// parameter server. What a server gathers and broadcasts was measured for each number of nodes.
struct Published {
    uint32_t nodes;
    Linear gather, broadcast;
};
constexpr Published published[] = {
    {4, {2.7156e-6, 4.1930e-1, 0.15573}, {2.7157e-6, 2.2156e-1, 0.14820}},
    {8, {6.1167e-6, 8.0768e-1, 0.28778}, {6.1172e-6, 2.7285e-1, 0.29666}},
    {16, {1.2937e-5, 1.4406, 0.59503}, {1.2915e-5, 4.5538e-1, 0.58353}},
};
constexpr Linear encode{1.4133e-8, 5.8938e-2, 0.05408}, decode{6.2041e-9, 1.3956e-1, 0.07287};
constexpr Linear ring_step{8.5005e-7, 2.0337e-1, 0.09766};
constexpr double compressed_share = 1.0 / 16;

// SeCoPa's formulas for m floats over N nodes in K parts: alpha * send(m / K), and if compressed
// alpha * send(r * m / K) + beta * encode(m / K) + gamma * decode(r * m / K).
double time_of(Strategy strategy, const Published &network, double floats, uint32_t parts,
               bool is_compressed) {
    const double nodes = network.nodes, part = floats / parts,
                 sent = is_compressed ? part * compressed_share : part;
    const bool is_ring = strategy == Strategy::ring;
    const double sends = is_ring ? 2 * (nodes - 1) * ring_step.of(sent)
                                 : network.gather.of(sent) + network.broadcast.of(sent);
    if (!is_compressed) return sends;
    const double beta = is_ring ? nodes : std::min(parts + 1.0, nodes),
                 gamma = is_ring ? nodes : std::min(nodes - 1 + parts, 2 * (nodes - 1));
    return sends + beta * encode.of(part) + gamma * decode.of(sent);
}

Partitioning decided(Strategy strategy, uint32_t nodes, double floats) {
    const Published &network = *std::ranges::find(published, nodes, &Published::nodes);
    std::vector<PartsTime> lossless, compressed;
    for (uint32_t parts = 1; parts <= nodes; parts++) {
        lossless.push_back({parts, time_of(strategy, network, floats, parts, false)});
        compressed.push_back({parts, time_of(strategy, network, floats, parts, true)});
    }
    return choose_partitioning(lossless, compressed);
}

double first_compressed(Strategy strategy, uint32_t nodes) {
    double least = 1, most = 1 << 26;
    CHECK(!decided(strategy, nodes, least).is_compressed);
    CHECK(decided(strategy, nodes, most).is_compressed);
    while (most - least > 1) {
        const double middle = std::floor((least + most) / 2);
        (decided(strategy, nodes, middle).is_compressed ? most : least) = middle;
    }
    return most;
}

} // namespace

static void published_sizes_are_cut_as_published() {
    struct Case {
        double floats;
        bool is_compressed;
        uint32_t parts;
    };
    for (const auto &[floats, is_compressed, parts] :
         {Case{64, false, 4}, Case{36864, false, 4}, Case{147456, false, 4}, Case{589824, false, 4},
          Case{1179648, true, 2}, Case{2359296, true, 4}, Case{16777216, true, 4},
          Case{102760448, true, 4}}) {
        const Partitioning choice = decided(Strategy::parameter_servers, 4, floats);
        CHECK_EQ(choice.is_compressed, is_compressed);
        CHECK_EQ(choice.best.parts, parts);
    }
}

// The published sizes were found in steps, so they may differ a little.
static void the_first_compressed_size_is_the_published_one() {
    constexpr double step = 0.005;
    for (const auto &[strategy, nodes, floats] :
         {std::tuple(Strategy::parameter_servers, 4U, 687e3),
          std::tuple(Strategy::parameter_servers, 8U, 1.275e6),
          std::tuple(Strategy::parameter_servers, 16U, 2.476e6),
          std::tuple(Strategy::ring, 4U, 674e3), std::tuple(Strategy::ring, 8U, 1.154e6),
          std::tuple(Strategy::ring, 16U, 2.153e6)})
        CHECK(std::abs(first_compressed(strategy, nodes) / floats - 1) < step);
}

static void the_fewest_of_equally_good_parts_are_taken() {
    const std::vector<PartsTime> times{{1, 107}, {2, 104}, {4, 100}, {8, 100}};
    CHECK_EQ(choose_partitioning(times, {}).best.parts, 4U);
    CHECK_EQ(choose_partitioning(times, {}, {.equal_time = 1.05}).best.parts, 2U);
    CHECK_EQ(choose_partitioning(times, {}, {.equal_time = 1.08}).best.parts, 1U);
}

static void compression_has_to_gain_enough() {
    const std::vector<PartsTime> lossless{{1, 125}}, compressed{{1, 110}, {2, 100}};
    const Partitioning gains = choose_partitioning(lossless, compressed, {.least_gain = 1.2});
    CHECK(gains.is_compressed && gains.best.parts == 2 && gains.best.time == 100);
    const Partitioning gains_too_little =
        choose_partitioning(lossless, compressed, {.least_gain = 1.25});
    CHECK(!gains_too_little.is_compressed && gains_too_little.best.time == 125);
    CHECK_EQ(gains_too_little.compressed.parts, 2U);
    CHECK(!choose_partitioning(lossless, lossless).is_compressed);
    CHECK(!choose_partitioning(lossless, {}).is_compressed);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(published_sizes_are_cut_as_published),
        QTEST(the_first_compressed_size_is_the_published_one),
        QTEST(the_fewest_of_equally_good_parts_are_taken),
        QTEST(compression_has_to_gain_enough),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
