// Tests terngrad of the scalar reference: the values that a number may become and how often, the
// clipping of scales, both ends of fp32, and values that are not finite.
#include "tests/kit/trip.hpp"

using namespace qccl;
using namespace trip;

namespace {

constexpr float largest = std::numeric_limits<float>::max(),
                infinite = std::numeric_limits<float>::infinity();

float scale_of(const std::string &text, const std::vector<float> &values, uint64_t bucket = 0) {
    return scale_at<float>(parsed(text), travel(parsed(text), values), bucket);
}

} // namespace

static void values_become_the_scale_or_nothing() {
    const std::vector<float> values = gaussian(3, 1000);
    const Trip trip = travel(parsed("terngrad"), values);
    for (size_t i = 0; i < values.size(); i++) {
        const float scale = scale_at<float>(parsed("terngrad"), trip, i / 512);
        CHECK(trip.values[i] == 0 || trip.values[i] == std::copysign(scale, values[i]));
        if (std::abs(values[i]) >= scale) CHECK(trip.values[i] != 0);
    }
}

// The share of kept values equals the ratio of the value to the scale.
static void values_are_right_on_average() {
    constexpr size_t count = 512 * 200;
    for (const float value : {0.25F, -0.875F, 0x1p-10F}) {
        std::vector<float> values(count, value);
        for (size_t i = 0; i < count; i += 64) values[i] = 1;
        const Trip trip = travel(parsed("terngrad:clip=1000"), values);
        double kept = 0, drawn = 0;
        for (size_t i = 0; i < count; i++) {
            if (i % 64 == 0) {
                CHECK_EQ(trip.values[i], 1.0F);
                continue;
            }
            CHECK(trip.values[i] == 0 || trip.values[i] == std::copysign(1.0F, value));
            kept += trip.values[i] != 0;
            drawn++;
        }
        const double share = std::abs(double{value});
        CHECK(std::abs(kept / drawn - share) < 6 * std::sqrt(share * (1 - share) / drawn));
    }
}

static void scales_are_clipped() {
    // The root mean square is 2.
    const std::vector<float> values{2, -2, 2, -2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, -2};
    CHECK_EQ(scale_of("terngrad", values), 2.0F); // the largest
    CHECK_EQ(scale_of("terngrad:clip=0.5", values), 1.0F);
    for (const float y : travel(parsed("terngrad:clip=0.5"), values).values)
        CHECK_EQ(std::abs(y), 1.0F);
    // One of 16 values is -4 and the others are 0, so the root mean square is 1.
    std::vector<float> one(16);
    one[7] = -4;
    CHECK_EQ(scale_of("terngrad", one), 2.5F);
    CHECK_EQ(travel(parsed("terngrad"), one).values[7], -2.5F);
    CHECK_EQ(scale_of("terngrad:clip=4", one), 4.0F);
    // Equal values far from zero are kept.
    CHECK_EQ(scale_of("terngrad", std::vector<float>(512, 1000)), 1000.0F);
    CHECK_EQ(scale_of("terngrad:bucket=16", {one[7], 0, 0, 0}), 4.0F); // RMS 2, clipped at 5
}

static void scales_reach_both_ends_of_fp32() {
    CHECK_EQ(scale_of("terngrad", {largest, -largest}), largest);
    CHECK_EQ(travel(parsed("terngrad"), {largest, -largest}).values[1], -largest);
    for (const float x : {0x1p-100F, 0x1p-126F, 0x1p-127F, 0x1p-149F}) {
        CHECK_EQ(scale_of("terngrad", {x, x, -x}), x);
        CHECK(travel(parsed("terngrad"), {x, x, -x}).values == std::vector<float>({x, x, -x}));
    }
    // If the scale underflows to zero, so do all values.
    CHECK_EQ(scale_of("terngrad:clip=0.001", {0x1p-149F}), 0.0F);
    CHECK_EQ(travel(parsed("terngrad:clip=0.001"), {0x1p-149F}).values[0], 0.0F);
    for (const float y : travel(parsed("terngrad"), {0, -0.0F}).values)
        CHECK_EQ(std::bit_cast<uint32_t>(y), 0U);
}

static void buckets_that_are_not_finite_are_nan() {
    for (const float special : {infinite, -infinite, NAN}) {
        std::vector<float> values(100, -1.0F);
        values[5] = special;
        const Trip trip = travel(parsed("terngrad:bucket=32"), values);
        for (size_t i = 0; i < values.size(); i++)
            CHECK_EQ(std::bit_cast<uint32_t>(trip.values[i]),
                     i < 32 ? float_nan : std::bit_cast<uint32_t>(-1.0F));
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(values_become_the_scale_or_nothing),
        QTEST(values_are_right_on_average),
        QTEST(scales_are_clipped),
        QTEST(scales_reach_both_ends_of_fp32),
        QTEST(buckets_that_are_not_finite_are_nan),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
