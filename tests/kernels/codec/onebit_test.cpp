// Tests codec onebit in the scalar reference: buckets worked out by hand, the order of its sums,
// sums that overflow, and values that are not finite.
#include "tests/kit/trip.hpp"

using namespace qccl;
using namespace trip;

namespace {

constexpr float largest = std::numeric_limits<float>::max(),
                infinite = std::numeric_limits<float>::infinity();

void check_means(const std::vector<float> &values, float mean, float negative_mean) {
    const Codec codec = parsed("onebit");
    const Trip trip = travel(codec, values);
    for (uint64_t i = 0; i < 2; i++)
        CHECK_EQ(std::bit_cast<uint32_t>(scale_at<float>(codec, trip, i)),
                 std::bit_cast<uint32_t>(i == 0 ? mean : negative_mean));
    for (size_t i = 0; i < values.size(); i++)
        CHECK_EQ(trip.values[i], values[i] < 0 ? negative_mean : mean);
}

// Returns the sum by lanes as WIRE.md describes it; all lanes end with the same sum.
float sum_by_lanes(const std::vector<float> &values) {
    float sums[32] = {};
    for (size_t i = 0; i < values.size(); i++) sums[i % 32] += values[i];
    for (const size_t distance : {16, 8, 4, 2, 1}) {
        float before[32];
        std::copy_n(sums, 32, before);
        for (size_t lane = 0; lane < 32; lane++) sums[lane] += before[lane ^ distance];
    }
    for (const float sum : sums) CHECK_EQ(sum, sums[0]);
    return sums[0];
}

} // namespace

static void buckets_worked_by_hand() {
    check_means({1, 2, 6, -1, -3}, 3, -2);
    check_means({0, -0.0F, 3}, 1, 0); // zeros of either sign do not count as negative
    check_means({-0.0F}, 0, 0);
    check_means({-5}, 0, -5);
    check_means({0x1p-149F, 0x1p-149F, -0x1p-149F}, 0x1p-149F, -0x1p-149F);
    const Trip two = travel(parsed("onebit:bucket=3"), {1, 1, 1, 5, -5});
    CHECK(two.values == std::vector<float>({1, 1, 1, 5, -5}));
}

static void sums_go_as_the_page_says() {
    std::vector<float> values = gaussian(5, 512);
    for (float &x : values) x = std::abs(x) * std::exp2(std::round(x * 8));
    const float sum = sum_by_lanes(values);
    float in_turn = 0;
    for (const float x : values) in_turn += x;
    CHECK(sum != in_turn); // otherwise this test would show nothing
    check_means(values, sum / 512, 0);
    values.resize(77);
    check_means(values, sum_by_lanes(values) / 77, 0);
}

static void sums_that_overflow_are_lowered() {
    check_means({largest, largest, -largest, -largest}, largest, -largest);
    check_means(std::vector<float>(512, largest), largest, 0);
    check_means({0x1p127F, 0x1p127F, 0x1p126F, -1, -3}, 0x1.AAAAAAp126F, -2);
    // Only the sum that overflows is scaled down: the other sum would lose its value.
    check_means({largest, largest, -0x1p-140F}, largest, -0x1p-140F);
}

static void buckets_that_are_not_finite_are_nan() {
    for (const float special : {infinite, -infinite, NAN}) {
        std::vector<float> values(100, -1.0F);
        values[5] = special;
        const Trip trip = travel(parsed("onebit:bucket=32"), values);
        for (size_t i = 0; i < values.size(); i++)
            CHECK_EQ(std::bit_cast<uint32_t>(trip.values[i]),
                     i < 32 ? float_nan : std::bit_cast<uint32_t>(-1.0F));
        CHECK_EQ(trip.chunk[header_bytes], std::byte{0}); // the codes are zero
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(buckets_worked_by_hand),
        QTEST(sums_go_as_the_page_says),
        QTEST(sums_that_overflow_are_lowered),
        QTEST(buckets_that_are_not_finite_are_nan),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
