// Tests Rehearsal of perf/info/advice: its sums equal those of the slow twin to the bit, for every
// algorithm and codec, on one host and on several, and its error is the error of the sum.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"
#include "tests/kit/sample.hpp"
#include "tests/kit/slow_twin.hpp"

#include "perf/info/rehearsal.hpp"
#include "plan/cost.hpp"

#include <cmath>
#include <cstring>

using namespace qccl;
using namespace qccl::perf;
using namespace qtest;

namespace {

constexpr const char *algorithms_tried[] = {"ring",
                                            "direct",
                                            "oneshot",
                                            "halving",
                                            "tree",
                                            "tree:shape=double",
                                            "doubling",
                                            "hierarchy",
                                            "hierarchy:inner=ring,outer=halving",
                                            "hierarchy:outer=tree,inner_codec=int8",
                                            "hierarchy:outer=direct,share=leader"};
constexpr const char *codecs_tried[] = {"none",  "bf16",   "int8",          "int4",
                                        "nvfp4", "minmax", "topk:ratio=0.1"};

Codec codec(const char *name) {
    const auto parsed = parse_codec(name);
    CHECK_OK(parsed);
    return *parsed;
}

// Returns locations by `way`: 0: all ranks on one host; 1: one rank a host; 2: two ranks a host and
// two hosts a rack.
std::vector<RankLocation> locations_of(uint32_t ranks, uint32_t way) {
    std::vector<RankLocation> spots(ranks);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const uint32_t host = way == 0 ? 0 : rank / way;
        spots[rank] = {.node = rank % 2, .host = host, .rack = way == 2 ? host / 2 : 0};
    }
    return spots;
}

std::vector<Bytes> inputs_of(const Source &source, const Rehearsal &r) {
    std::vector<Bytes> inputs(r.ranks, Bytes(r.count * type_bytes(r.type)));
    for (uint32_t rank = 0; rank < r.ranks; rank++)
        source.read(rank, r.type, 0, r.count, inputs[rank].data());
    return inputs;
}

void compare(const Rehearsal &r, const char *algorithm, const std::vector<RankLocation> &spots) {
    const auto source = make_gaussian(r.ranks + r.count);
    const auto sum = rehearse(r, *source);
    CHECK_OK(sum);
    const TwinCall call{.algorithm = algorithm,
                        .type = r.type,
                        .codec = r.codec,
                        .count = r.count,
                        .ranks = r.ranks,
                        .seed = r.codec.seed,
                        .inner_codec = r.inner_codec,
                        .spots = spots};
    if (*sum != slow_twin(call, inputs_of(*source, r))[0])
        throw Failure{std::string(algorithm) + " with " + spec(r.codec) + " of " +
                      std::to_string(r.ranks) + " ranks differs"};
}

} // namespace

static void sums_are_those_of_the_slow_twin() {
    Sample sample;
    for (const char *algorithm : algorithms_tried)
        for (const char *with : codecs_tried)
            for (const uint32_t ranks : {1U, 2U, 3U, 8U})
                for (const uint32_t way : {0U, 1U, 2U})
                    for (const DataType type : {DataType::float32, DataType::float16}) {
                        if (!sample.takes(3)) continue;
                        const auto spots = locations_of(ranks, way);
                        const RankTopology places(spots);
                        Rehearsal r{.algorithm = algorithm_of(algorithm),
                                    .codec = codec(with),
                                    .inner_codec = {},
                                    .type = type,
                                    .count = 3001,
                                    .ranks = ranks,
                                    .places = &places};
                        r.inner_codec = inner_codec(r.algorithm, r.codec);
                        compare(r, algorithm, spots);
                    }
    CHECK(sample.taken > 100);
}

// hierarchy is left out, because the slow twin has no noise for it.
static void noise_is_that_of_the_first_call() {
    for (const char *algorithm : {"ring", "direct", "oneshot", "halving", "tree", "doubling"})
        compare({.algorithm = algorithm_of(algorithm),
                 .codec = codec("int4:round=stochastic,seed=7"),
                 .count = 3001,
                 .ranks = 5},
                algorithm, {});
}

static void errors_are_those_of_the_sum() {
    const auto source = make_gaussian(3);
    Rehearsal r{.algorithm = algorithm_of("ring"), .codec = {}, .count = 5000, .ranks = 4};
    auto nmse = rehearsed_nmse(r, *source);
    CHECK_OK(nmse);
    CHECK(*nmse && **nmse == 0); // values of this source add up exactly
    r.codec = codec("int4");
    nmse = rehearsed_nmse(r, *source);
    CHECK_OK(nmse);
    const auto sum = rehearse(r, *source);
    CHECK_OK(sum);
    double error = 0, power = 0;
    const std::vector<Bytes> inputs = inputs_of(*source, r);
    for (size_t i = 0; i < r.count; i++) {
        double exact = 0;
        float value;
        for (const Bytes &input : inputs) {
            std::memcpy(&value, input.data() + i * sizeof value, sizeof value);
            exact += static_cast<double>(value);
        }
        std::memcpy(&value, sum->data() + i * sizeof value, sizeof value);
        error += std::pow(static_cast<double>(value) - exact, 2);
        power += exact * exact;
    }
    CHECK(std::abs(**nmse - error / power) < 1e-12);
    CHECK(**nmse > 1e-3 && **nmse < 1e-1);
}

// If the exact sum is zero or not finite, the error is undefined.
static void data_that_are_zero_or_no_numbers_have_no_error() {
    class Same final : public Source {
    public:
        explicit Same(float value) : value_(value) {}
        void read(uint32_t, DataType, uint64_t, size_t count, std::byte *dst) const override {
            for (size_t i = 0; i < count; i++)
                std::memcpy(dst + i * sizeof value_, &value_, sizeof value_);
        }
        uint32_t exact_ranks(DataType) const override { return 1; }

    private:
        float value_;
    };
    for (const float value : {0.0F, NAN, INFINITY}) {
        const auto nmse = rehearsed_nmse({.algorithm = algorithm_of("ring"),
                                          .codec = codec("int8"),
                                          .inner_codec = codec("int8"),
                                          .count = 100,
                                          .ranks = 2},
                                         Same(value));
        CHECK_OK(nmse);
        CHECK(!*nmse);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(sums_are_those_of_the_slow_twin),
        QTEST(noise_is_that_of_the_first_call),
        QTEST(errors_are_those_of_the_sum),
        QTEST(data_that_are_zero_or_no_numbers_have_no_error),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
