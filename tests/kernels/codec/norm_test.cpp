// Tests codec norm in the scalar reference: buckets worked out by hand, the order of its sums,
// norms whose squares overflow or vanish, the bounds of norms, and values that are not finite.
#include "tests/kit/trip.hpp"

using namespace qccl;
using namespace trip;

namespace {

constexpr float largest = std::numeric_limits<float>::max(),
                infinite = std::numeric_limits<float>::infinity(), most_norm = 0x1.FFFFFCp127F;

float norm_of(const char *text, const std::vector<float> &values) {
    const Codec codec = parsed(text);
    return scale_at<float>(codec, travel(codec, values), 0);
}

// Compares what values are decoded to, bit by bit.
void check_values(const char *text, const std::vector<float> &values,
                  const std::vector<float> &expected) {
    const Trip trip = travel(parsed(text), values);
    CHECK_EQ(trip.values.size(), expected.size());
    for (size_t i = 0; i < values.size(); i++)
        CHECK_EQ(std::bit_cast<uint32_t>(trip.values[i]), std::bit_cast<uint32_t>(expected[i]));
}

} // namespace

static void buckets_worked_by_hand() {
    CHECK_EQ(norm_of("norm", {3, 0, -4}), 5.0F);
    CHECK_EQ(norm_of("norm:norm=linf", {3, 0, -4}), 4.0F);
    // The norm is 7, and so are the levels: a step is 1. Halves go to even numbers.
    check_values("norm:bits=4,norm=linf,round=nearest", {7, -6.5F, 5.5F, -0.5F, 0.51F, -0.0F},
                 {7, -6, 6, 0, 1, 0});
    check_values("norm:bits=2,round=nearest", {3, -4}, {5, -5}); // 0.6 and 0.8 of the norm
    // Levels are 0, 1/4, 1/2 and 1. In the middle of two the next power wins, but not below 1/4.
    check_values("norm:bits=3,norm=linf,levels=exponential,round=nearest",
                 {16, -12, 11.9F, 6, -5.9F, 3, -2.1F, 2, -1, 0},
                 {16, -16, 8, 8, -4, 4, -4, 0, 0, 0});
    // Whole numbers of steps, and levels themselves, stay as they are whatever the noise is.
    check_values("norm:bits=4,norm=linf", {7, -6, 5, -4, 3, -2, 1, 0}, {7, -6, 5, -4, 3, -2, 1, 0});
    check_values("norm:bits=8,norm=linf,levels=exponential", {1, -0.5F, 0x1p-126F, -0x1p-100F},
                 {1, -0.5F, 0x1p-126F, -0x1p-100F});
    check_values("norm:bits=2,bucket=2,round=nearest", {0.1F, 0, 0, -7}, {0.1F, 0, 0, -7});
}

// Every value becomes one of its two neighbours, and those on a level stay.
static void values_become_neighbours() {
    for (const char *text :
         {"norm:bits=4,norm=linf", "norm:bits=4", "norm:bits=5,levels=exponential",
          "norm:bits=3,norm=linf,levels=exponential"}) {
        const Codec codec = parsed(text);
        const std::vector<float> values = gaussian(3, 4096);
        const Trip trip = travel(codec, values);
        const double levels = norm_levels(codec.bits);
        for (size_t i = 0; i < values.size(); i++) {
            const double norm = scale_at<float>(codec, trip, i / codec.bucket);
            const double share = std::abs(double{values[i]}) / norm;
            const double lowest = std::exp2(1 - levels);
            const double step = codec.levels == Levels::uniform ? 1 / levels
                                : share < lowest                ? lowest
                                                 : std::exp2(std::floor(std::log2(share)));
            CHECK(std::abs(double{trip.values[i]} - double{values[i]}) < step * norm * 1.00001);
            CHECK(trip.values[i] == 0 || (trip.values[i] < 0) == (values[i] < 0));
        }
    }
}

static void sums_go_as_the_page_says() {
    std::vector<float> values = gaussian(5, 512);
    for (float &x : values) x *= std::exp2(std::round(x * 3));
    float sums[32] = {};
    for (size_t i = 0; i < values.size(); i++) sums[i % 32] += values[i] * values[i];
    for (const size_t distance : {16, 8, 4, 2, 1}) {
        float before[32];
        std::copy_n(sums, 32, before);
        for (size_t lane = 0; lane < 32; lane++) sums[lane] += before[lane ^ distance];
    }
    float in_turn = 0;
    for (const float x : values) in_turn += x * x;
    CHECK(std::sqrt(sums[0]) != std::sqrt(in_turn)); // otherwise this test would show nothing
    CHECK_EQ(norm_of("norm", values), std::sqrt(sums[0]));
}

static void squares_that_overflow_or_vanish_are_lifted() {
    CHECK_EQ(norm_of("norm", {0x3p100F, -0x4p100F}), 0x5p100F);
    CHECK_EQ(norm_of("norm", {0x3p-90F, -0x4p-90F}), 0x5p-90F);
    CHECK_EQ(norm_of("norm", {0x3p-35F, 0x4p-35F}), 0x5p-35F); // just below the bound of the sum
    CHECK_EQ(norm_of("norm", std::vector<float>(4, 0x1p-60F)), 0x1p-59F);
    CHECK_EQ(norm_of("norm:levels=exponential", {0x3p-128F, 0x4p-128F}), 0x5p-128F);
}

static void norms_have_bounds() {
    CHECK_EQ(norm_of("norm", {largest, largest}), most_norm);
    CHECK_EQ(norm_of("norm:norm=linf", {-largest}), most_norm);
    for (const char *text : {"norm:bits=2,norm=linf", "norm:bits=4,norm=linf", "norm:norm=linf",
                             "norm:norm=linf,levels=exponential"}) {
        const float value = travel(parsed(text), {largest}).values[0];
        CHECK(std::isfinite(value) && value > 0.999999F * most_norm);
    }
    for (int bits = 2; bits <= 8; bits++) { // a step is a normal number, or all is zero
        const std::string text = "norm:norm=linf,round=nearest,bits=" + std::to_string(bits);
        const float least = 0x1p-126F * static_cast<float>((1 << (bits - 1)) - 1);
        check_values(text.c_str(), {least, -0x1p-126F}, {least, -0x1p-126F});
        check_values(text.c_str(), {std::nextafter(least, 0.0F), -0x1p-127F}, {0, 0});
        const std::string powers = text + ",levels=exponential";
        check_values(powers.c_str(), {0x1p-126F}, {0x1p-126F});
        check_values(powers.c_str(), {0x1.FFFFFCp-127F}, {0});
    }
    CHECK_EQ(std::bit_cast<uint32_t>(norm_of("norm", {0, -0.0F})), 0U);
    CHECK_EQ(std::bit_cast<uint32_t>(norm_of("norm:norm=linf", {-0.0F})), 0U);
}

static void buckets_that_are_not_finite_are_nan() {
    for (const char *text : {"norm:bucket=32,norm=linf,bits=3", "norm:bucket=32,bits=3",
                             "norm:bucket=32,levels=exponential,bits=4"})
        for (const float special : {infinite, -infinite, NAN}) {
            std::vector<float> values(100, 0.0F);
            for (size_t i = 32; i < values.size(); i += 32) values[i] = -1.0F;
            values[5] = special;
            const Trip trip = travel(parsed(text), values);
            for (size_t i = 0; i < values.size(); i++)
                CHECK_EQ(std::bit_cast<uint32_t>(trip.values[i]),
                         i < 32 ? float_nan : std::bit_cast<uint32_t>(i % 32 == 0 ? -1.0F : 0.0F));
            CHECK_EQ(trip.chunk[header_bytes], std::byte{0}); // the codes are zero
        }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(buckets_worked_by_hand),   QTEST(values_become_neighbours),
        QTEST(sums_go_as_the_page_says), QTEST(squares_that_overflow_or_vanish_are_lifted),
        QTEST(norms_have_bounds),        QTEST(buckets_that_are_not_finite_are_nan),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
