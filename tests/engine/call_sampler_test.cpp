// Tests lib/engine/run/call_sampler: samples lie inside the vector, spread over it and over the
// calls, stay within their share of the values, and show the loss that a codec has on the whole
// vector.
#include "tests/kit/engine_ranks.hpp"

#include "engine/run/call_sampler.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <set>

using namespace qccl;

namespace {

void places_lie_in_the_vector() {
    for (const uint64_t unit : {1, 32, 100, 512, 4096})
        for (const uint64_t count :
             {1, 31, 32, 255, 256, 257, 1000, 4095, 4096, 5000, 100000, 10000000})
            for (uint64_t turn = 0; turn < 40; turn++) {
                const SampleSize size = SampleSize::of(count, unit, 512);
                const uint64_t run = run_values(count, size);
                const auto places = sample_places(count, size, turn);
                CHECK(!places.empty());
                CHECK(run * places.size() <= count);
                for (const uint64_t place : places) {
                    CHECK(place % unit == 0);
                    CHECK(place + run <= count);
                }
                CHECK(places == sample_places(count, size, turn));
            }
}

// Over many turns every part of a vector is sampled.
void turns_look_elsewhere() {
    constexpr uint64_t count = 1 << 20;
    const SampleSize size = SampleSize::of(count, 32, 512);
    std::set<uint64_t> parts;
    for (uint64_t turn = 0; turn < 4000; turn++)
        for (const uint64_t place : sample_places(count, size, turn)) parts.insert(place >> 10);
    CHECK_EQ(parts.size(), size_t{1} << 10);
}

void turns_keep_the_share() {
    constexpr uint64_t divisor = 512;
    for (const uint64_t count : {100, 5000, 70000, 131072, 10000000}) {
        const SampleSize size = SampleSize::of(count, 32, divisor);
        SampleTurns turns;
        uint64_t read = 0, calls = 3000;
        for (uint64_t call = 0; call < calls; call++) {
            const bool is_due = turns.next(count, size, divisor);
            if (call == 0) CHECK(is_due);
            if (is_due) read += std::min(count, size.values);
        }
        CHECK(read <= calls * count / divisor + size.values);
        // Every large call is sampled.
        if (count >= 1024 * divisor) CHECK_EQ(turns.taken(), calls);
    }
}

std::vector<float> gaussian(size_t count) {
    std::mt19937_64 generator(5);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float &value : values) value = normal(generator);
    return values;
}

SampledArea area_of(const std::vector<float> &values) {
    return {reinterpret_cast<const std::byte *>(values.data()), values.size()};
}

// Compares the sampled loss with that of an encode of the whole vector.
void samples_show_what_the_whole_loses() {
    const std::vector<float> values = gaussian(1 << 18);
    for (const char *text : {"int8", "int4", "int2:block=100", "minmax:bits=4", "nvfp4", "mxfp4",
                             "onebit", "terngrad", "norm:bits=6", "fp8e4m3", "bf16"}) {
        const Codec codec = *parse_codec(text);
        CallSampler sampler(host_device(best_kernels()));
        SampledLoss sampled;
        for (uint64_t turn = 0; turn < 16; turn++) {
            const SampleSize size = SampleSize::of(values.size(), std::max(1U, codec.bucket), 512);
            CHECK_OK(sampler.read(area_of(values), DataType::float32, size, turn));
            sampled.add(sampler.measure(codec));
        }
        CallSampler all(host_device(best_kernels()));
        CHECK_OK(all.read(area_of(values), DataType::float32, {values.size(), values.size()}, 0));
        const SampledLoss whole = all.measure(codec);
        CHECK(whole.nmse() > 0);
        CHECK(std::abs(sampled.nmse() / whole.nmse() - 1) < 0.1);
        CHECK(std::abs(whole.loss().nmse() - whole.nmse()) < 1e-9);
        CHECK(std::abs(whole.square - all.square()) < 1e-6 * whole.square);
        // The loss of the whole vector agrees with the error model, too.
        CHECK(std::abs(whole.nmse() / unit_nmse(codec, DataType::float32) - 1) < 0.25);
    }
}

// A program skips a step with infinite gradients anyway, so infinite inputs must not count as loss
// of the codec.
void infinite_values_do_not_count() {
    std::vector<float> values = gaussian(4096);
    CallSampler sampler(host_device(best_kernels()));
    const SampleSize size{4096, 32};
    values[300] = std::numeric_limits<float>::infinity();
    values[301] = std::numeric_limits<float>::quiet_NaN();
    CHECK_OK(sampler.read(area_of(values), DataType::float32, size, 1));
    const SampledLoss found = sampler.measure(*parse_codec("int8"));
    CHECK(std::isfinite(found.error) && found.error > 0);
    CHECK(found.nmse() < 1e-3);
    // Values that become infinite in the codec do count.
    std::vector<float> large(4096, 1.0F);
    for (size_t i = 0; i < large.size(); i += 2) large[i] = 3e38F;
    CHECK_OK(sampler.read(area_of(large), DataType::float32, size, 1));
    CHECK(sampler.measure(*parse_codec("fp16")).nmse() > 0.9);
    CHECK_OK(sampler.read({}, DataType::float32, size, 1));
    CHECK_EQ(sampler.measure(*parse_codec("int8")).error, 0.0);
}

} // namespace

int main() {
    static const CMUnitTest tests[] = {
        QTEST(places_lie_in_the_vector),     QTEST(turns_look_elsewhere),
        QTEST(turns_keep_the_share),         QTEST(samples_show_what_the_whole_loses),
        QTEST(infinite_values_do_not_count),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
