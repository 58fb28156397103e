// Tests expected_nmse() of lib/plan/sampled_error: it is within 15 % of the errors of whole sums of
// ranks that have nothing in common, something, or everything, but for two codecs that the table of
// tolerances names. What one encode loses is measured on the same data.
#include "tests/kit/plan_kit.hpp"

#include "heavy_data.hpp"
#include "tests/kit/slow_twin.hpp"

#include "plan/sampled_error.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace qccl;
using namespace qtest;

namespace {

constexpr uint64_t count = 1 << 15;

using Values = std::vector<float>;

Bytes bytes_of(const Values &values) {
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

Values values_of(const Bytes &bytes) {
    Values values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

double product(const Values &a, const Values &b) {
    return std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                              [](double x, double y) { return x * y; });
}

struct Case {
    std::vector<Values> ranks = {};
    Values sum = {};

    double square() const { // of all ranks
        return std::accumulate(ranks.begin(), ranks.end(), 0.0,
                               [](double total, const Values &v) { return total + product(v, v); });
    }
    double power_ratio() const { return square() / product(sum, sum); }
};

Case made(const HeavyKind &kind, double correlation, uint32_t ranks) {
    const HeavyData generator(kind, correlation, 7);
    Case data{.ranks = {}, .sum = Values(count)};
    std::vector<double> sum(count);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        data.ranks.push_back(generator.of_rank(rank, count));
        for (uint64_t i = 0; i < count; i++) sum[i] += static_cast<double>(data.ranks[rank][i]);
    }
    std::ranges::transform(sum, data.sum.begin(), [](double x) { return static_cast<float>(x); });
    return data;
}

SampledLoss loss_between(const Values &values, const Values &decoded) {
    Values errors(values.size());
    std::ranges::transform(decoded, values, errors.begin(), std::minus<>());
    return {.square = product(values, values),
            .product = product(values, errors),
            .error = product(errors, errors)};
}

// What one encode of each of the vectors loses: that of a broadcast.
Loss lost(const Codec &codec, const std::vector<Values> &all) {
    SampledLoss loss;
    for (const Values &values : all) {
        const TwinCall call{.collective = Collective::broadcast,
                            .algorithm = "direct",
                            .codec = codec,
                            .count = count,
                            .ranks = 2};
        const Bytes sent = bytes_of(values);
        loss.add(loss_between(values, values_of(slow_twin(call, {sent, sent})[1])));
    }
    return loss.loss();
}

double measured(const Case &data, const Codec &codec, const char *algorithm) {
    const auto ranks = static_cast<uint32_t>(data.ranks.size());
    const TwinCall call{.algorithm = algorithm, .codec = codec, .count = count, .ranks = ranks};
    std::vector<Bytes> inputs;
    std::ranges::transform(data.ranks, std::back_inserter(inputs), bytes_of);
    return loss_between(data.sum, values_of(slow_twin(call, inputs)[0])).nmse();
}

EncodeCounts counts_of(const Case &data, const Codec &codec, const char *algorithm) {
    const auto ranks = static_cast<uint32_t>(data.ranks.size());
    return {.codec = codec,
            .inner_codec = {},
            .encodes = algorithm_of(algorithm).noise(Collective::all_reduce, {.size = ranks}),
            .inner_encodes = {},
            .summands = static_cast<double>(ranks),
            .result_encodes = 1};
}

// Strong enough to matter for scales, and not so strong that chance in a few blocks decides.
constexpr HeavyKind blocks{.name = "blocks 0.6", .of_blocks = 0.6};

// How far the estimate may be off, as a part of the measured error. The estimate is meant to be
// this near.
constexpr double required = 0.15;

// By correlation: up to a half, 0.9, 1.
struct Tolerance {
    const char *codec;
    double usual = required, alike = required, equal = required;
};

// Two codecs are not always as near, and their rows have what was found: onebit, whose errors
// resemble the values, is 18 % too high in rings of independent ranks; terngrad is too low by
// trees, by 26 % for ranks that are alike and by 20 % for equal ones.
constexpr Tolerance tolerances[] = {
    {.codec = "int8"},
    {.codec = "int4"},
    {.codec = "int2"},
    {.codec = "minmax:bits=4"},
    {.codec = "mxfp8e4m3"},
    {.codec = "fp8e4m3:block=32"},
    {.codec = "bf16"},
    {.codec = "norm"},
    {.codec = "int4:round=stochastic"},
    {.codec = "topk:ratio=0.01"},
    {.codec = "topk:ratio=0.1"},
    {.codec = "onebit", .usual = 0.2},
    {.codec = "terngrad", .alike = 0.3, .equal = 0.25},
};

void check_near(double expected, double found, double tolerance, const std::string &what) {
    if (std::abs(expected / found - 1) < tolerance) return;
    throw Failure{what + ": " + std::to_string(expected / found) + " of the measured NMSE"};
}

void check_algorithms(const Case &data, double correlation, double Tolerance::*tolerance,
                      std::initializer_list<const char *> algorithms) {
    for (const Tolerance &row : tolerances) {
        const Codec codec = *parse_codec(row.codec);
        const SumStatistics statistics{.input = lost(codec, data.ranks),
                                       .result = lost(codec, {data.sum}),
                                       .power_ratio = data.power_ratio()};
        for (const char *algorithm : algorithms) {
            const double found = measured(data, codec, algorithm);
            check_near(expected_nmse(counts_of(data, codec, algorithm), statistics), found,
                       row.*tolerance,
                       std::string(row.codec) + " by " + algorithm + ", " +
                           std::to_string(data.ranks.size()) + " ranks, correlation " +
                           std::to_string(correlation));
        }
    }
}

} // namespace

static void sums_of_ranks_with_something_in_common() {
    for (const HeavyKind &kind : {heavy_kinds[0], blocks})
        for (const double correlation : {0.0, 0.2, 0.5})
            check_algorithms(made(kind, correlation, 4), correlation, &Tolerance::usual,
                             {"direct", "ring", "tree", "halving"});
}

static void sums_of_ranks_that_are_alike() {
    check_algorithms(made(heavy_kinds[0], 0.9, 8), 0.9, &Tolerance::alike, {"direct", "tree"});
}

// Rounding to the nearest makes the same error on all ranks.
static void sums_of_equal_ranks() {
    check_algorithms(made(heavy_kinds[0], 1, 4), 1, &Tolerance::equal, {"direct", "tree"});
}

// Only fine codecs round ranks that resemble each other independently, each once.
static void sums_without_an_encode_of_the_result() {
    for (const double correlation : {0.0, 0.5, 0.9}) {
        const Case data = made(heavy_kinds[0], correlation, 8);
        for (const char *text : {"int8", "int4", "mxfp8e4m3", "norm"}) {
            const Codec codec = *parse_codec(text);
            const SumStatistics statistics{.input = lost(codec, data.ranks),
                                           .result = lost(codec, {data.sum}),
                                           .power_ratio = data.power_ratio()};
            check_near(expected_nmse(counts_of(data, codec, "oneshot"), statistics),
                       measured(data, codec, "oneshot"), required, text);
        }
    }
}

// Ranks of which every other one has the negative of the common part.
static void sums_of_ranks_that_cancel_each_other_out() {
    Case data = made(heavy_kinds[0], 0.5, 4);
    for (uint32_t rank = 1; rank < 4; rank += 2)
        for (float &value : data.ranks[rank]) value = -value;
    for (uint64_t i = 0; i < count; i++) {
        data.sum[i] = 0;
        for (const Values &values : data.ranks) data.sum[i] += values[i];
    }
    CHECK(data.power_ratio() > 1.8);
    for (const char *text : {"int8", "int4"}) {
        const Codec codec = *parse_codec(text);
        const SumStatistics statistics{.input = lost(codec, data.ranks),
                                       .result = lost(codec, {data.sum}),
                                       .power_ratio = data.power_ratio()};
        check_near(expected_nmse(counts_of(data, codec, "direct"), statistics),
                   measured(data, codec, "direct"), required, text);
    }
}

// Returns the part of the ranks' squares in the parts that they sum themselves by direct.
static double own_share_of(const Case &data) {
    const uint64_t part = count / data.ranks.size();
    double own = 0;
    for (uint64_t rank = 0; rank < data.ranks.size(); rank++)
        for (uint64_t i = rank * part; i < (rank + 1) * part; i++)
            own += std::pow(static_cast<double>(data.ranks[rank][i]), 2);
    return own / data.square();
}

// Each rank is `times` as strong in the part that it sums as in the others. A rank encodes nothing
// of its own there.
static void sums_of_ranks_that_are_strong_where_they_sum() {
    for (const float times : {8.0F, 0.25F}) {
        Case data = made(heavy_kinds[0], 0, 4);
        for (uint64_t i = 0; i < count; i++) {
            data.ranks[i / (count / 4)][i] *= times;
            data.sum[i] = 0;
            for (const Values &values : data.ranks) data.sum[i] += values[i];
        }
        for (const char *text : {"int8", "int4", "mxfp8e4m3", "bf16"}) {
            const Codec codec = *parse_codec(text);
            SumStatistics statistics{.input = lost(codec, data.ranks),
                                     .result = lost(codec, {data.sum}),
                                     .power_ratio = data.power_ratio(),
                                     .own_share = own_share_of(data)};
            const EncodeCounts counts = counts_of(data, codec, "direct");
            const double found = measured(data, codec, "direct");
            check_near(expected_nmse(counts, statistics), found, required, text);
            statistics.own_share.reset(); // that of ranks that are equally strong everywhere
            const double equal = expected_nmse(counts, statistics);
            CHECK(times > 1 ? equal > (1 + required) * found : equal < (1 - required / 2) * found);
        }
    }
}

// By a tree the root encodes nothing, however strong it is.
static void sums_at_a_strong_root() {
    Case data = made(heavy_kinds[0], 0, 4);
    for (float &value : data.ranks[0]) value *= 6;
    for (uint64_t i = 0; i < count; i++) {
        data.sum[i] = 0;
        for (const Values &values : data.ranks) data.sum[i] += values[i];
    }
    const Codec codec = *parse_codec("int8");
    const SumStatistics statistics{.input = lost(codec, data.ranks),
                                   .result = lost(codec, {data.sum}),
                                   .power_ratio = data.power_ratio(),
                                   .own_share =
                                       product(data.ranks[0], data.ranks[0]) / data.square()};
    check_near(expected_nmse(counts_of(data, codec, "tree"), statistics),
               measured(data, codec, "tree"), required, "int8 at a strong root");
}

// What predicted_nmse() and estimated_nmse() say of independent ranks is far too high for others.
static void the_number_of_encodes_says_too_much() {
    for (const double correlation : {0.2, 0.5, 0.9}) {
        const Case data = made(heavy_kinds[0], correlation, 4);
        const Codec codec = *parse_codec("int4");
        const Loss once = lost(codec, data.ranks);
        const double found = measured(data, codec, "direct");
        CHECK(estimated_nmse(counts_of(data, codec, "direct"), {.loss = once, .inner_loss = {}}) >
              (1 + required) * found);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(sums_of_ranks_with_something_in_common),
        QTEST(sums_of_ranks_that_are_alike),
        QTEST(sums_of_equal_ranks),
        QTEST(sums_without_an_encode_of_the_result),
        QTEST(sums_of_ranks_that_cancel_each_other_out),
        QTEST(sums_of_ranks_that_are_strong_where_they_sum),
        QTEST(sums_at_a_strong_root),
        QTEST(the_number_of_encodes_says_too_much),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
