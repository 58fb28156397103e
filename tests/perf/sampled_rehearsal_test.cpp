// Tests sampled_nmse() of perf/info/rehearsal: from a sample it is within 15 % of the errors of
// whole sums, which the slow twin makes, also for ranks that are unlike each other and for vectors
// of which few values hold most of the squares. What three figures of the values say
// (expected_nmse) is not. A sample of everything says what the whole sum does.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"
#include "tests/kit/slow_twin.hpp"

#include "codec/chunk.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "perf/info/rehearsal.hpp"
#include "plan/sampled_error.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace qccl;
using namespace qccl::perf;
using namespace qtest;

namespace {

constexpr uint32_t ranks = 4;
constexpr uint64_t count = 1 << 16;

using Values = std::vector<float>;

// The values of all ranks as a source.
class Vectors final : public Source {
public:
    // `scale` returns how large a rank's value is; half of the ranks' squares are common.
    template <class Scale> explicit Vectors(Scale scale) {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            Values values(count);
            for (uint64_t i = 0; i < count; i++)
                values[i] = scale(rank, i) * (gaussian(1, i) + gaussian(2 + rank, i));
            ranks_.push_back(std::move(values));
        }
    }
    void read(uint32_t rank, DataType, uint64_t first, size_t values,
              std::byte *dst) const override {
        std::memcpy(dst, ranks_[rank].data() + first, values * sizeof(float));
    }
    uint32_t exact_ranks(DataType) const override { return 1; }

    const std::vector<Values> &all() const { return ranks_; }
    Values sum() const {
        Values sum(count);
        for (uint64_t i = 0; i < count; i++) {
            double total = 0;
            for (const Values &values : ranks_) total += static_cast<double>(values[i]);
            sum[i] = static_cast<float>(total);
        }
        return sum;
    }

private:
    std::vector<Values> ranks_;
};

// Like the gradients of a network whose last layer is small: the last hundredth of the vector holds
// most of the squares, the ranks' strengths differ, and the strongest rank sums the last quarter.
float last_layer(uint32_t rank, uint64_t i) {
    constexpr float strengths[ranks] = {0.1F, 0.15F, 0.6F, 0.8F};
    const float own = 1 + 0.5F * gaussian(90 + rank, i / 64);
    return strengths[rank] * own * (i >= count / 100 * 99 ? 25.0F : 1.0F);
}
// Each rank is a third as strong as the one before, so that rings add weak ranks to strong ones.
float falling(uint32_t rank, uint64_t) { return std::pow(3.0F, -static_cast<float>(rank)); }
// Each rank has large values where the others have none.
float apart(uint32_t rank, uint64_t i) { return i / 32 % ranks == rank ? 1.0F : 0.02F; }
float alike(uint32_t, uint64_t) { return 1; }

Codec codec(const char *name) {
    const auto parsed = parse_codec(name);
    CHECK_OK(parsed);
    return *parsed;
}

Rehearsal rehearsal_of(const char *algorithm, const Codec &with) {
    return {.algorithm = algorithm_of(algorithm),
            .codec = with,
            .inner_codec = {},
            .count = count,
            .ranks = ranks};
}

double error_between(const Values &exact, const Values &found) {
    double error = 0, square = 0;
    for (uint64_t i = 0; i < exact.size(); i++) {
        const auto x = static_cast<double>(exact[i]);
        error += std::pow(static_cast<double>(found[i]) - x, 2);
        square += x * x;
    }
    return error / square;
}

// `number`: of the communicator's call, by which it draws its noise.
double measured(const Vectors &vectors, const char *algorithm, const Codec &with,
                uint64_t number = 1) {
    std::vector<Bytes> inputs;
    for (const Values &values : vectors.all()) {
        inputs.emplace_back(count * sizeof(float));
        std::memcpy(inputs.back().data(), values.data(), inputs.back().size());
    }
    const TwinCall call{.algorithm = algorithm,
                        .codec = with,
                        .count = count,
                        .ranks = ranks,
                        .number = number,
                        .seed = with.seed};
    const Bytes result = slow_twin(call, inputs)[0];
    Values found(count);
    std::memcpy(found.data(), result.data(), result.size());
    return error_between(vectors.sum(), found);
}

double sampled(const Vectors &vectors, const char *algorithm, const Codec &with) {
    // An eighth, as of longer vectors.
    const SampleSize size{.share = 1.0 / 8, .fewest_values = 1, .run_values = 512};
    const auto nmse = sampled_nmse(rehearsal_of(algorithm, with), vectors, size);
    CHECK_OK(nmse);
    CHECK(nmse->has_value());
    return **nmse;
}

// What one encode of the vector loses.
Values encoded(const Codec &with, const Values &values) {
    const Kernels &kernels = best_kernels();
    const PayloadLayout layout = payload_layout(with, DataType::float32, count);
    Bytes payload(layout.bytes);
    const ChunkRange range = whole_chunk(with, layout, DataType::float32, count);
    kernels.encode(range, {}, DataType::float32, values.data(), payload.data());
    Values decoded(count);
    kernels.decode(range, payload.data(), DataType::float32, decoded.data(), false);
    return decoded;
}

double square(const Values &values) {
    double total = 0;
    for (const float x : values) total += static_cast<double>(x) * static_cast<double>(x);
    return total;
}

// What the three figures of qcclExplain's sample= say.
double by_figures(const Vectors &vectors, const char *algorithm, const Codec &with) {
    double squares = 0, errors = 0;
    for (const Values &values : vectors.all()) {
        squares += square(values);
        errors += square(values) * error_between(values, encoded(with, values));
    }
    const Values sum = vectors.sum();
    return expected_nmse(
        {.codec = with,
         .inner_codec = {},
         .encodes = algorithm_of(algorithm).noise(Collective::all_reduce, {.size = ranks}),
         .inner_encodes = {},
         .summands = ranks},
        {.input = {.growth = errors / squares},
         .result = {.growth = error_between(sum, encoded(with, sum))},
         .power_ratio = squares / square(sum)});
}

constexpr double required = 0.15;

void check_near(const char *what, const char *algorithm, const char *with, double said,
                double found) {
    if (std::abs(said / found - 1) < required) return;
    throw Failure{std::string(what) + ", " + with + " by " + algorithm + ": " +
                  std::to_string(said / found) + " of the measured NMSE"};
}

struct NamedVectors {
    const char *name;
    Vectors vectors;
};

const std::vector<NamedVectors> &all_vectors() {
    static const std::vector<NamedVectors> all = {{"last layer", Vectors(last_layer)},
                                                  {"falling", Vectors(falling)},
                                                  {"apart", Vectors(apart)},
                                                  {"alike", Vectors(alike)}};
    return all;
}

} // namespace

static void samples_say_the_error_of_the_whole_sum() {
    for (const auto &[name, vectors] : all_vectors())
        for (const char *with : {"int8", "int4", "int2", "mxfp8e4m3", "nvfp4", "minmax:bits=4",
                                 "bf16", "onebit", "topk:ratio=0.01"})
            for (const char *algorithm : {"direct", "ring", "tree", "halving"})
                check_near(name, algorithm, with, sampled(vectors, algorithm, codec(with)),
                           measured(vectors, algorithm, codec(with)));
}

// The figures take ranks and parts for equally strong, and every encode for a new one.
static void figures_do_not_say_it_of_unlike_ranks() {
    const auto &all = all_vectors();
    const Codec int4 = codec("int4");
    for (const auto &[which, algorithm] :
         {std::pair{0, "direct"}, {1, "ring"}, {2, "ring"}, {2, "tree"}}) {
        const Vectors &vectors = all[static_cast<size_t>(which)].vectors;
        const double found = measured(vectors, algorithm, int4);
        CHECK(by_figures(vectors, algorithm, int4) > (1 + required) * found);
    }
    const Vectors &equal = all.back().vectors;
    check_near("alike by figures", "direct", "int4", by_figures(equal, "direct", int4),
               measured(equal, "direct", int4));
}

static void a_sample_of_everything_is_the_whole_sum() {
    const Vectors &vectors = all_vectors()[0].vectors;
    const SampleSize everything{.share = 1, .fewest_values = 1, .run_values = 512};
    const SampleSize short_vector{.share = 0.01, .fewest_values = count};
    const SampleSize few_runs{.share = 0.01, .fewest_values = 1, .run_values = count / ranks};
    for (const char *with : {"int4", "minmax", "topk:ratio=0.01"}) {
        const Rehearsal rehearsal = rehearsal_of("ring", codec(with));
        const auto whole = rehearsed_nmse(rehearsal, vectors);
        CHECK_OK(whole);
        for (const SampleSize &size : {everything, short_vector, few_runs}) {
            const auto sample = sampled_nmse(rehearsal, vectors, size);
            CHECK_OK(sample);
            CHECK(sample->has_value());
            CHECK(std::abs(**sample / **whole - 1) < 1e-9);
        }
    }
}

// Few values draw noise that matters, so one call may be far off: the mean of four is predicted.
static void noise_is_averaged() {
    const Vectors &vectors = all_vectors()[0].vectors;
    const Codec with = codec("int4:round=stochastic,seed=7");
    check_near("last layer", "ring", "int4:round=stochastic", sampled(vectors, "ring", with),
               measured(vectors, "ring", with));
    const SampleSize everything{.share = 1, .fewest_values = 1, .run_values = 512};
    const auto mean = sampled_nmse(rehearsal_of("ring", with), vectors, everything);
    CHECK_OK(mean);
    CHECK(mean->has_value());
    double sum = 0, farthest = 0;
    for (uint64_t number = 1; number <= 4; number++) {
        const double one = measured(vectors, "ring", with, number);
        sum += one;
        farthest = std::max(farthest, std::abs(one / **mean - 1));
    }
    CHECK(std::abs(sum / 4 / **mean - 1) < 1e-5);
    CHECK(farthest > 1e-2);
}

static void samples_of_zeros_have_no_error() {
    const Vectors zeros([](uint32_t, uint64_t) { return 0.0F; });
    const auto nmse = sampled_nmse(rehearsal_of("direct", codec("int4")), zeros);
    CHECK_OK(nmse);
    CHECK(!*nmse);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(samples_say_the_error_of_the_whole_sum),
        QTEST(figures_do_not_say_it_of_unlike_ranks),
        QTEST(a_sample_of_everything_is_the_whole_sum),
        QTEST(noise_is_averaged),
        QTEST(samples_of_zeros_have_no_error),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
