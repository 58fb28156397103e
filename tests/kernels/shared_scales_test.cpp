// Tests the arithmetic of the codec shared: scales against their definition, and every CPU tier
// that runs here against the scalar reference, byte for byte.
#include "kernel_operands.hpp"
#include "tests/kit/qtest.hpp"

#include "codec/error_model.hpp"
#include "codec/shared_scales.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace qccl;
using namespace operands;

namespace {

constexpr uint32_t infinity_pattern = 0x7F800000, largest_bfloat = 0x7F7F;

uint32_t below(std::mt19937 &random, uint32_t bound) {
    return static_cast<uint32_t>(random() % bound);
}

double of_bfloat(uint32_t pattern) { return std::bit_cast<float>(pattern << 16); }

// Products of a bfloat16 and a limit have at most 15 bits, so doubles compare them exactly.
void check_scale(uint32_t magnitude, uint32_t limit) {
    const uint32_t scale = shared_scale(magnitude, limit);
    const double value = std::bit_cast<float>(magnitude);
    CHECK(scale <= largest_bfloat);
    if (scale < largest_bfloat) CHECK(of_bfloat(scale) * limit >= value);
    if (scale > 0) CHECK(of_bfloat(scale - 1) * limit < value);
    if (scale > 0 && scale < largest_bfloat)
        CHECK(std::rint(std::bit_cast<float>(magnitude) /
                        shared_step(static_cast<uint16_t>(scale))) <= static_cast<float>(limit));
}

// The vectors of one test, in memory between guards.
struct SharedBlocks {
    SharedBlocks(size_t values, size_t of_block, size_t shift)
        : count(values), block(of_block), x(values * sizeof(float), shift) {}

    size_t blocks() const { return (count + block - 1) / block; }
    std::vector<uint16_t> scales(const std::vector<uint32_t> &magnitudes) const {
        std::vector<uint16_t> all;
        for (const uint32_t magnitude : magnitudes) all.push_back(shared_scale(magnitude, 7));
        return all;
    }

    size_t count, block;
    Buffer x;
};

const float *floats(Buffer &buffer) { return reinterpret_cast<const float *>(buffer.data()); }

std::vector<uint32_t> magnitudes_by(const Kernels &kernels, SharedBlocks &blocks) {
    std::vector<uint32_t> greatest(blocks.blocks() + 1, 5);
    kernels.find_magnitudes(greatest.data(), floats(blocks.x), blocks.count, blocks.block);
    CHECK_EQ(greatest.back(), 5U);
    greatest.pop_back();
    return greatest;
}

void check_tier(const Kernels &tier, SharedBlocks &blocks, const std::string &what) {
    const auto fail = [&](const char *where) {
        throw qtest::Failure{std::string(name(tier.tier)) + " differs: " + where + ", " + what};
    };
    const auto greatest = magnitudes_by(scalar_kernels(), blocks);
    if (magnitudes_by(tier, blocks) != greatest) fail("magnitudes");
    const std::vector<uint16_t> scales = blocks.scales(greatest);
    Buffer want(blocks.count * sizeof(float), 4), got = want;
    scalar_kernels().to_integers(reinterpret_cast<float *>(want.data()), floats(blocks.x),
                                 scales.data(), blocks.count, blocks.block);
    tier.to_integers(reinterpret_cast<float *>(got.data()), floats(blocks.x), scales.data(),
                     blocks.count, blocks.block);
    if (!same(got, want)) fail("integers");
    for (const uint32_t ranks : {1U, 3U}) { // in place
        Buffer value = want, other = want;
        scalar_kernels().from_integers(reinterpret_cast<float *>(value.data()), floats(value),
                                       scales.data(), blocks.count, blocks.block, ranks);
        tier.from_integers(reinterpret_cast<float *>(other.data()), floats(other), scales.data(),
                           blocks.count, blocks.block, ranks);
        if (!same(value, other)) fail("values");
    }
}

} // namespace

static void scales_are_the_least_that_hold_the_magnitude() {
    std::mt19937 random(41);
    for (const uint32_t limit : {1U, 3U, 7U, 15U, 31U, 63U, 127U}) {
        CHECK_EQ(shared_scale(0, limit), 0);
        for (const uint32_t magnitude : {infinity_pattern, infinity_pattern + 1, 0x7FFFFFFFU})
            CHECK_EQ(shared_scale(magnitude, limit), shared_nan_scale);
        for (uint32_t magnitude = 1; magnitude < infinity_pattern;
             magnitude += 1 + below(random, 99991))
            check_scale(magnitude, limit);
        for (const uint32_t edge : {1U, 0x00800000U, 0x7F7FFFFFU, 0x3F800000U})
            for (uint32_t near = edge > 40 ? edge - 40 : 1; near < edge + 40; near++)
                if (near < infinity_pattern) check_scale(near, limit);
        // Right at and next to magnitudes that are a multiple of a bfloat16.
        for (uint32_t pattern = 0; pattern < largest_bfloat; pattern += 1 + below(random, 7)) {
            const double whole = of_bfloat(pattern) * limit;
            if (whole > std::numeric_limits<float>::max()) break;
            const auto magnitude = std::bit_cast<uint32_t>(static_cast<float>(whole));
            CHECK_EQ(shared_scale(magnitude, limit), pattern);
            if (magnitude + 1 < infinity_pattern) check_scale(magnitude + 1, limit);
        }
    }
}

static void scales_grow_with_magnitudes() {
    std::mt19937 random(42);
    for (int i = 0; i < 100000; i++) {
        const auto draw = [&random] { return static_cast<uint32_t>(random() & 0x7FFFFFFF); };
        const uint32_t a = draw(), b = draw(), limit = (2U << (random() % 7)) - 1;
        CHECK_EQ(std::max(shared_scale(a, limit), shared_scale(b, limit)),
                 shared_scale(std::max(a, b), limit));
    }
}

static void integers_are_the_nearest_and_never_negative_zeros() {
    std::mt19937 random(45);
    for (int i = 0; i < 200000; i++) {
        const auto scale = static_cast<uint16_t>(1 + below(random, largest_bfloat));
        const int halves = static_cast<int>(below(random, 2 * 254 + 1)) - 254;
        const float step = shared_step(scale), tie = static_cast<float>(halves) / 2 * step;
        for (const float x : {tie, std::nextafter(tie, 0.0F), std::nextafter(tie, 2 * tie)}) {
            if (!std::isfinite(x)) continue;
            const float integer = integer_of(x, scale);
            CHECK_EQ(integer, std::rint(x / step));
            CHECK(integer != 0 || !std::signbit(integer));
        }
    }
    for (const uint16_t scale : {uint16_t{0}, shared_nan_scale})
        CHECK_EQ(std::bit_cast<uint32_t>(integer_of(-1.0F, scale)), 0U);
}

static void all_tiers_compute_as_the_reference() {
    Values values(43);
    for (const Pattern pattern : patterns)
        for (const size_t block : std::initializer_list<size_t>{1, 3, 16, 32, 33, 1000})
            for (const size_t count : std::initializer_list<size_t>{0, 1, 31, 32, 64, 65, 1037}) {
                SharedBlocks blocks(count, block, values.pick(16) * sizeof(float));
                fill(values, pattern, DataType::float32, blocks.x.data(), count);
                for (const Kernels *const tier : available_kernels())
                    check_tier(*tier, blocks,
                               "block " + std::to_string(block) + ", count " +
                                   std::to_string(count) + ", pattern " +
                                   std::to_string(static_cast<int>(pattern)));
            }
}

// One rank's values, whose scales are its own.
static void the_error_of_gaussian_values_is_as_predicted() {
    std::mt19937 random(44);
    std::normal_distribution<float> gauss;
    constexpr size_t count = size_t{1} << 18;
    std::vector<float> x(count), y(count);
    for (float &value : x) value = gauss(random);
    for (const char *text : {"shared:bits=2", "shared:bits=3", "shared", "shared:block=256",
                             "shared:bits=6,block=8", "shared:bits=8"}) {
        const Codec codec = *parse_codec(text);
        const size_t block = codec.shared_block;
        std::vector<uint32_t> greatest(count / block);
        scalar_kernels().find_magnitudes(greatest.data(), x.data(), count, block);
        std::vector<uint16_t> scales;
        for (const uint32_t each : greatest)
            scales.push_back(shared_scale(each, shared_limit(codec)));
        scalar_kernels().to_integers(y.data(), x.data(), scales.data(), count, block);
        scalar_kernels().from_integers(y.data(), y.data(), scales.data(), count, block, 1);
        double error = 0, square = 0;
        for (size_t i = 0; i < count; i++) {
            error += std::pow(double{y[i]} - double{x[i]}, 2);
            square += std::pow(double{x[i]}, 2);
        }
        const double ratio = error / square / unit_nmse(codec, DataType::float32);
        if (!(ratio > 0.97 && ratio < 1.03))
            throw qtest::Failure{std::string(text) + ": " + std::to_string(ratio)};
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(scales_are_the_least_that_hold_the_magnitude),
        QTEST(scales_grow_with_magnitudes),
        QTEST(integers_are_the_nearest_and_never_negative_zeros),
        QTEST(all_tiers_compute_as_the_reference),
        QTEST(the_error_of_gaussian_values_is_as_predicted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
