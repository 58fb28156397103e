// Tests the bounds of lib/codec/error_model and choose_within() of lib/plan/planner: on data with
// heavy tails, whole collectives lose no more than the bounds on which the choice by a budget
// relies, and such a choice keeps its budget.
#include "tests/kit/plan_kit.hpp"

#include "heavy_data.hpp"
#include "tests/kit/sample.hpp"
#include "tests/kit/slow_twin.hpp"

#include "codec/error_model.hpp"
#include "plan/planner.hpp"

#include <algorithm>
#include <cstring>
#include <map>

using namespace qccl;
using namespace qtest;

namespace {

constexpr uint64_t count = 1 << 13;
constexpr uint32_t teams[] = {2, 4, 8, 16};
constexpr double correlations[] = {0, 0.5, 1};
constexpr double errors[] = {1e-1, 1e-2, 1e-3, 1e-4, 1e-5};

struct Case {
    HeavyKind kind;
    double correlation;
    uint32_t ranks;
    std::vector<Bytes> inputs = {};
    std::vector<double> sums = {};
    double cancelled = 1; // cancellation by chance: ranks' powers over the sum's, at least 1

    std::string name() const {
        return std::string(kind.name) + ", correlation " + std::to_string(correlation) + ", " +
               std::to_string(ranks) + " ranks";
    }
};

Case made(const HeavyKind &kind, double correlation, uint32_t ranks) {
    Case data{.kind = kind, .correlation = correlation, .ranks = ranks};
    data.sums.resize(count);
    const HeavyData generator(kind, correlation, 7);
    double terms = 0, power = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const std::vector<float> values = generator.of_rank(rank, count);
        Bytes &bytes = data.inputs.emplace_back(count * sizeof(float));
        std::memcpy(bytes.data(), values.data(), bytes.size());
        for (uint64_t i = 0; i < count; i++) {
            const auto value = static_cast<double>(values[i]);
            data.sums[i] += value;
            terms += value * value;
        }
    }
    for (const double sum : data.sums) power += sum * sum;
    data.cancelled = std::max(1.0, terms / power);
    return data;
}

template <class Body> void for_each_case(const Body &body) {
    for (const HeavyKind &kind : heavy_kinds)
        for (const double correlation : correlations)
            for (const uint32_t ranks : teams) body(made(kind, correlation, ranks));
}

void check_at_most(double measured, double most, const std::string &what) {
    if (measured <= most) return;
    throw Failure{what + ": NMSE is " + std::to_string(measured / most) + " of the most expected"};
}

double measured_nmse(const Case &data, const Codec &codec, const std::string &algorithm,
                     const std::vector<RankLocation> &spots = {}) {
    const TwinCall call{.algorithm = algorithm,
                        .codec = codec,
                        .count = count,
                        .ranks = data.ranks,
                        .spots = spots};
    const Bytes output = slow_twin(call, data.inputs)[0];
    double error = 0, power = 0;
    for (uint64_t i = 0; i < count; i++) {
        float value;
        std::memcpy(&value, output.data() + i * sizeof value, sizeof value);
        const double difference = static_cast<double>(value) - data.sums[i];
        error += difference * difference;
        power += data.sums[i] * data.sums[i];
    }
    return error / power;
}

double encodes_by(const char *algorithm, uint32_t ranks) {
    return algorithm_of(algorithm).noise(Collective::all_reduce, {.size = ranks}).first;
}

} // namespace

// If the generator's tails were light, this file would prove nothing.
static void the_data_have_heavy_tails() {
    double least = 1e9, most = 0;
    for (const HeavyKind &kind : heavy_kinds) {
        double square = 0, fourth = 0;
        for (const float value : HeavyData(kind, 0, 7).of_rank(0, 1 << 16)) {
            const double power = static_cast<double>(value) * static_cast<double>(value);
            square += power;
            fourth += power * power;
        }
        const double kurtosis = fourth / square / square * (1 << 16);
        least = std::min(least, kurtosis);
        most = std::max(most, kurtosis);
    }
    CHECK(least < 3.2 && most > 300 && most < 3000);
}

// Tries every algorithm, up to the number of encodes for which bounds are known.
static void no_codec_loses_more_than_its_bound() {
    Sample sample;
    for_each_case([&](const Case &data) {
        for (const char *algorithm : {"direct", "ring", "oneshot", "halving", "tree", "doubling"})
            for (const BoundedCodec &row : bounded_codecs()) {
                const double encodes = encodes_by(algorithm, data.ranks);
                if (encodes > row.most_encodes || !sample.takes(16)) continue;
                check_at_most(measured_nmse(data, row.codec, algorithm),
                              row.nmse * encodes * data.cancelled,
                              spec(row.codec) + " by " + algorithm + ", " + data.name());
            }
    });
    CHECK(sample.taken > 100);
}

// Long rings encode partial sums again and again.
static void long_rings_lose_no_more() {
    constexpr uint32_t ranks = 64;
    Sample sample;
    for (const HeavyKind &kind : heavy_kinds)
        for (const double correlation : {0.0, 1.0}) {
            if (!sample.takes_of_few(3)) continue;
            const Case data = made(kind, correlation, ranks);
            for (const BoundedCodec &row : bounded_codecs())
                if (const double encodes = encodes_by("ring", ranks); encodes <= row.most_encodes)
                    check_at_most(measured_nmse(data, row.codec, "ring"),
                                  row.nmse * encodes * data.cancelled,
                                  spec(row.codec) + " by a long ring, " + data.name());
        }
    CHECK(sample.taken > 0);
}

// Each codec loses half its bound on some data, so no bound could be half as large.
static void no_bound_is_idle() {
    std::map<const BoundedCodec *, double> most;
    for (const HeavyKind &kind : heavy_kinds) {
        const Case data = made(kind, 1, 2);
        for (const BoundedCodec &row : bounded_codecs())
            most[&row] = std::max(most[&row], measured_nmse(data, row.codec, "oneshot"));
    }
    for (const auto &[row, nmse] : most)
        if (nmse < row->nmse / 2) throw Failure{spec(row->codec) + " never loses half its bound"};
}

// Chooses between hosts on a slow link, where codecs pay; and on one host, where min=0 asks for a
// codec.
static void a_choice_keeps_its_budget() {
    Sample sample;
    size_t lossy = 0;
    for_each_case([&](const Case &data) {
        std::vector<RankLocation> apart(data.ranks);
        for (uint32_t rank = 0; rank < data.ranks; rank++) apart[rank].host = rank;
        const RankTopology places(apart);
        for (const RankTopology *where : {&places, static_cast<const RankTopology *>(nullptr)})
            for (const double error : errors) {
                if (!sample.takes(4)) continue;
                char name[32];
                std::snprintf(name, sizeof name, "auto:nmse=%g,min=0", error);
                Problem problem = all_reduce(count, data.ranks, DataType::float32, name);
                problem.places = where;
                const Plan plan = chosen(problem);
                if (plan.codec.is_lossless()) continue;
                lossy++;
                const std::string algorithm = spec(plan.algorithm);
                check_at_most(measured_nmse(data, plan.codec, algorithm,
                                            where ? apart : std::vector<RankLocation>()),
                              error,
                              std::string(name) + ", " + spec(plan.codec) + ", " + data.name());
            }
    });
    CHECK(lossy > 100 / thinning());
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_data_have_heavy_tails), QTEST(no_codec_loses_more_than_its_bound),
        QTEST(long_rings_lose_no_more),   QTEST(no_bound_is_idle),
        QTEST(a_choice_keeps_its_budget),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
